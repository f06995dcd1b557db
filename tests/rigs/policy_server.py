"""A server of a policy, as a program: it answers chats with the fields of vLLM or of SGLang, and loads adapters.

``python -m tests.rigs.policy_server --port 8000 --form vllm``. Every second conversation does what its request says.
With ``--form start`` it loads the adapter of ``HERMES_EXEC_ADAPTER`` at its start, and has no call for it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.rigs.tokens import ChatTokenizer

BASE = "base-model"
_LOAD = {"vllm": "/v1/load_lora_adapter", "sglang": "/load_lora_adapter"}
_UNLOAD = {"vllm": "/v1/unload_lora_adapter", "sglang": "/unload_lora_adapter"}


class Policy:
    """The state of the server."""

    def __init__(self, form: str, *, ids: bool, fail_first: int = 0) -> None:
        self.form = form
        self.models = [BASE]
        self.tokenizer = ChatTokenizer(forget=not ids)
        self.fail_first = fail_first
        self._count = itertools.count()
        self._lock = threading.Lock()
        self.asked: list[str] = []
        self.answers = threading.Event()
        """Cleared, it lets requests wait."""
        self.answers.set()

    def load(self, body: dict[str, Any]) -> int:
        folder = Path(body["lora_path"])
        if not (folder / "adapter_model.safetensors").is_file() or not (folder / "adapter_config.json").is_file():
            return 400
        self.models.append(body["lora_name"])
        return 200

    def unload(self, body: dict[str, Any]) -> int:
        self.models.remove(body["lora_name"])
        return 200

    def complete(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        with self._lock:
            self.asked.append(body["model"])
            number = next(self._count)
        self.answers.wait()
        if body["model"] not in self.models:
            return 404, {"error": {"message": "no such model"}}
        if number < self.fail_first:
            return 400, {"error": {"message": "broken on purpose"}}
        last = body["messages"][-1]
        message: dict[str, Any] = {"role": "assistant", "content": f"Done as number {number}."}
        if last["role"] == "user":
            word = "good" if number % 2 else "bad"
            arguments = json.dumps({"command": f"echo {word} > out; echo {number} > number"})
            call = {"id": f"call_{number}", "type": "function",
                    "function": {"name": "terminal", "arguments": arguments}}  # fmt: skip
            message |= {"content": "", "tool_calls": [call]}
        finish = "tool_calls" if "tool_calls" in message else "stop"
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        completion = {"id": f"c-{number}", "object": "chat.completion", "created": 1, "model": body["model"],
                      "choices": [choice], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}  # fmt: skip
        if body.get("return_token_ids") and body.get("logprobs"):
            self.tokenizer.add_ids(completion, body)
        if self.form == "sglang":
            completion |= {"metadata": {"weight_version": "default"}}
            choice["matched_stop"] = 151645
        return 200, completion


def serve(port: int, policy: Policy, host: str = "127.0.0.1") -> ThreadingHTTPServer:
    """Return the server, which listens."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/health":
                self._send(200, {})
            elif self.path == "/v1/models":
                self._send(200, {"object": "list", "data": [
                    {"id": each, "object": "model", "max_model_len": 32768} for each in policy.models
                ]})  # fmt: skip
            else:
                self._send(404, {})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path == "/v1/chat/completions":
                self._send(*policy.complete(body))
            elif self.path == _LOAD.get(policy.form):
                self._send(policy.load(body), {})
            elif self.path == _UNLOAD.get(policy.form):
                self._send(policy.unload(body), {})
            else:
                self._send(404, {"detail": "Not Found"})

        def _send(self, code: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return ThreadingHTTPServer((host, port), Handler)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--form", choices=(*_LOAD, "start"), default="vllm")
    parser.add_argument("--no-ids", action="store_true")
    found = parser.parse_args()
    print(f"process {os.getpid()}", flush=True)
    served = Policy(found.form, ids=not found.no_ids)
    if found.form == "start" and "HERMES_EXEC_ADAPTER" in os.environ:
        at_start = {"lora_path": os.environ["HERMES_EXEC_ADAPTER"], "lora_name": os.environ["HERMES_EXEC_POLICY"]}
        assert served.load(at_start) == 200
    serve(found.port, served, found.host).serve_forever()
