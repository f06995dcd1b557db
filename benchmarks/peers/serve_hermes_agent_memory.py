"""hermes-agent's session database, session search and memory tool: a request in JSON for each line, and its answer."""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

home = tempfile.mkdtemp()
os.environ["HERMES_HOME"] = home

from hermes_state import SessionDB  # noqa: E402  the variable comes first
from tools.memory_tool import MemoryStore, memory_tool  # noqa: E402  the same
from tools.session_search_tool import session_search  # noqa: E402  the same

ROLES = {"user": "user", "assistant": "assistant", "result": "tool"}


class Served:
    def __init__(self) -> None:
        self.databases = 0
        self.keys: dict[int, list] = {}
        self.store = MemoryStore()
        self.store.load_from_disk()

    def load(self, path: str) -> dict:
        self.databases += 1
        self.keys.clear()
        self.db = SessionDB(Path(home, f"state{self.databases}.db"))
        sessions = set()
        for line in Path(path).read_text().splitlines():
            turn = json.loads(line)
            if turn["kind"] not in ROLES:
                continue
            session, data = turn["conversation"], turn["data"]
            if session not in sessions:
                sessions.add(session)
                self.db.create_session(session, "cli")
            identity = self.db.append_message(
                session,
                ROLES[turn["kind"]],
                data["content"],
                tool_name=data.get("name"),
                tool_call_id=data.get("id"),
                tool_calls=[self.to_call(each) for each in data.get("tool_calls") or ()] or None,
                timestamp=turn["at"],
            )
            self.keys[identity] = [session, turn["number"]]
        return {}

    @staticmethod
    def to_call(call: dict) -> dict:
        function = {"name": call["name"], "arguments": call["arguments"]}
        return {"id": call["id"], "type": "function", "function": function}

    def search(self, query: str) -> dict:
        begin = time.perf_counter()
        answer = json.loads(session_search(query, limit=10, db=self.db))
        took = time.perf_counter() - begin
        return {
            "took": took,
            "sessions": [each["session_id"] for each in answer.get("results", ())],
            "turns": [self.keys[each["id"]] for each in self.db.search_messages(query, limit=20)],
        }

    def write(self, old: str, new: str) -> dict:
        begin = time.perf_counter()
        if old:
            answer = memory_tool("replace", content=new, old_text=old, store=self.store)
        else:
            answer = memory_tool("add", content=new, store=self.store)
        return {"took": time.perf_counter() - begin, "ok": bool(json.loads(answer).get("success"))}


served = Served()
for line in sys.stdin:
    name, *words = json.loads(line)
    print("answer", json.dumps(getattr(served, name)(*words)), flush=True)
