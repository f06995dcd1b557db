"""A job's log as it comes from the guest: one stream as it is, or both in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Literal

from hermes_exec.guest.wire import STDERR, STDOUT
from hermes_exec.jobstatus import raise_error
from hermes_exec.result import Event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hermes_exec.carrier import Running
    from hermes_exec.link.link import Link

LogStream = Literal["both", "stdout", "stderr"]
STREAMS: dict[LogStream, int] = {"both": 0, "stdout": STDOUT, "stderr": STDERR}
_ERR_BIT = 1 << 31


class LogSink:
    """Takes the log's bytes and cuts them into events; what is not taken yet makes the guest wait."""

    def __init__(self, stream: LogStream) -> None:
        self.wake = asyncio.Event()
        self._stream = stream
        self._chunks: deque[bytes] = deque()
        self._head = b""
        self._left = 0
        self._kind: Literal["stdout", "stderr"] = "stderr" if stream == "stderr" else "stdout"

    def feed(self, call: Running, channel: int, data: bytes, /) -> None:
        """Take bytes from the carrier."""
        self._chunks.append(data)
        self.wake.set()

    def take(self, call: Running) -> list[Event] | None:
        """The events of the next bytes; None when there are no bytes."""
        if not self._chunks:
            return None
        data = self._chunks.popleft()
        call.consumed(STDOUT, len(data))
        return [Event(self._kind, data)] if self._stream != "both" else self._cut(data)

    def _cut(self, data: bytes) -> list[Event]:
        """Each piece of the interleaved log has a head: the stream in its top bit, and its length."""
        events: list[Event] = []
        at = 0
        while at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                events.append(Event(self._kind, piece))
                self._left -= len(piece)
                at += len(piece)
                continue
            part = data[at : at + 4 - len(self._head)]
            self._head += part
            at += len(part)
            if len(self._head) == 4:
                head = int.from_bytes(self._head, "big")
                self._kind = "stderr" if head & _ERR_BIT else "stdout"
                self._left = head & (_ERR_BIT - 1)
                self._head = b""
        return events


async def read(link: Link, fields: dict[str, Any], stream: LogStream) -> AsyncGenerator[Event]:
    """The events of one ``log`` request; leaving early ends it."""
    sink = LogSink(stream)
    call = link.call("log", {**fields, "stream": STREAMS[stream]}, sink)
    call.answer.add_done_callback(lambda _: sink.wake.set())
    try:
        while True:
            over = call.answer.done()  # asked first: all data came before the answer
            sink.wake.clear()
            while (events := sink.take(call)) is not None:
                for event in events:
                    yield event
            if over:
                raise_error(call.answer.result(), f"the log of job {fields['job']}")
                return
            await sink.wake.wait()
    finally:
        call.cancel()
