"""A server of chat completions that costs next to nothing: prepared bytes over HTTP, in a process of its own.

Requests are answered in turn with a call of a tool and with a last word. For each but the first of a connection it
prints the seconds from the last byte of the answer before to the last byte of the request, by its own clock.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any, Self

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
"""The last bytes of each answer."""


def _answer(*deltas: dict[str, Any], finish: str) -> bytes:
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks: list[dict[str, Any]] = [
        {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    chunks.append({**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    chunks.append(
        {**frame, "choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}}
    )
    events = b"".join(b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\n\n"
    return b"%s%x\r\n%s\r\n%s" % (_HEAD, len(events), events, END)


def answers() -> tuple[bytes, bytes]:
    """A call of the tool ``nothing``, and a last word."""
    function = {"name": "nothing", "arguments": '{"n": 1}'}
    call = {"index": 0, "id": "call_1", "type": "function", "function": function}
    return (
        _answer({"role": "assistant", "content": ""}, {"tool_calls": [call]}, finish="tool_calls"),
        _answer({"role": "assistant", "content": "do"}, {"content": "ne"}, finish="stop"),
    )


def read_request(stream: IO[bytes]) -> bool:
    """Read one to its end; False where there is none."""
    length = -1
    while line := stream.readline():
        if line == b"\r\n":
            return len(stream.read(length)) == length
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return False


def _serve() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    both = answers()
    while True:
        connection, _ = listening.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number, sent = 0, 0.0
        with connection, connection.makefile("rb") as stream:
            while read_request(stream):
                arrived = time.perf_counter()
                connection.sendall(both[number % 2])
                if number:
                    print(arrived - sent, flush=True)
                number, sent = number + 1, time.perf_counter()


class Replies:
    """The server, from outside. It has one client at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-I", Path(__file__)], stdout=subprocess.PIPE, text=True)
        self.port = int(self._line())

    def gap(self) -> float:
        """Seconds between two requests, the next that was printed."""
        return float(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


if __name__ == "__main__":
    _serve()
