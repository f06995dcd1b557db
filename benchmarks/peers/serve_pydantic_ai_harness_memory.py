"""pydantic-ai-harness' conversation search and memory tools: a request in JSON for each line, and its answer."""

import asyncio
import json
import re
import sys
import tempfile
import time
from pathlib import Path

from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import RunContext
from pydantic_ai.usage import RunUsage
from pydantic_ai_harness.conversation_search import ConversationSearch
from pydantic_ai_harness.memory import Memory, SqliteMemoryStore
from pydantic_ai_harness.step_persistence import RunRecord

HIT = re.compile(r"^\[score: [^|]*\| run: ([^\s\]]+)[^\n]*\n\[(\d+)\]", re.MULTILINE)


class Source:
    """Runs as `HistorySource` has them."""

    def __init__(self) -> None:
        self.histories: dict[str, list] = {}

    async def list_runs(self) -> list[RunRecord]:
        return [RunRecord(run_id=run) for run in self.histories]

    async def run_history(self, *, run_id: str) -> list:
        return self.histories[run_id]


class Served:
    def __init__(self) -> None:
        self.calls = 0
        self.numbers: dict[str, list[int]] = {}
        self.source = Source()
        self.memory = Memory(store=SqliteMemoryStore(database=Path(tempfile.mkdtemp(), "memory.db")))
        self.toolset = ConversationSearch(self.source, scope="all", max_matches=20, context_lines=0).get_toolset()

    def load(self, path: str) -> dict:
        self.numbers.clear()
        self.source.histories.clear()
        for line in Path(path).read_text().splitlines():
            turn = json.loads(line)
            if message := self.to_message(turn["kind"], turn["data"]):
                self.source.histories.setdefault(turn["conversation"], []).append(message)
                self.numbers.setdefault(turn["conversation"], []).append(turn["number"])
        return {}

    @staticmethod
    def to_message(kind: str, data: dict) -> ModelRequest | ModelResponse | None:
        if kind == "user":
            return ModelRequest(parts=[UserPromptPart(data["content"])])
        if kind == "result":
            return ModelRequest(parts=[ToolReturnPart(data["name"], data["content"], data["id"])])
        if kind != "assistant":
            return None
        calls = [ToolCallPart(each["name"], each["arguments"], each["id"]) for each in data.get("tool_calls") or ()]
        return ModelResponse(parts=[TextPart(data["content"]), *calls] if data["content"] else calls)

    def context(self) -> RunContext:
        self.calls += 1
        name = f"call{self.calls}"
        return RunContext(deps=None, model=TestModel(), usage=RunUsage(), tool_call_id=name, run_id=name)

    async def search(self, query: str) -> dict:
        begin = time.perf_counter()
        answer = await self.toolset.search_conversation_history(self.context(), query)
        took = time.perf_counter() - begin
        turns = [[run, self.numbers[run][int(index)]] for run, index in HIT.findall(answer)]
        return {"took": took, "turns": turns, "sessions": list(dict.fromkeys(run for run, _ in turns))}

    async def write(self, old: str, new: str) -> dict:
        begin = time.perf_counter()
        answer = await self.memory.get_toolset().write_memory(self.context(), new, old_text=old or None)
        return {"took": time.perf_counter() - begin, "ok": bool(answer)}


async def main() -> None:
    served = Served()
    for line in sys.stdin:
        name, *words = json.loads(line)
        answer = getattr(served, name)(*words)
        print("answer", json.dumps(await answer if asyncio.iscoroutine(answer) else answer), flush=True)


asyncio.run(main())
