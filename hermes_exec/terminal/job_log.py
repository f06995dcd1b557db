"""Read the log of a job from the guest: one stream, or both in the order in which they were written."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from hermes_exec.errors import ProtocolError
from hermes_exec.guest.core.wire import STDERR, STDOUT
from hermes_exec.result import Event, Truncation
from hermes_exec.terminal.job_status import raise_for_answer
from hermes_exec.transport.call import LeaseExpired

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hermes_exec.result import Result
    from hermes_exec.terminal.job_status import JobStatus
    from hermes_exec.transport.link import Link
    from hermes_exec.transport.protocol import RunningCommand

LogStream = Literal["both", "stdout", "stderr"]
STREAMS: dict[LogStream, int] = {"both": 0, "stdout": STDOUT, "stderr": STDERR}
_ERR_BIT = 1 << 31
_HEAD = 0.4
"""The share of a shortened output that is its beginning."""


class LogSink:
    """Receives the bytes of a log and splits them into events; bytes that are not taken yet make the guest wait."""

    def __init__(self, stream: LogStream) -> None:
        self.wake = asyncio.Event()
        self._stream = stream
        self._chunks: deque[bytes] = deque()
        self._head = b""
        self._left = 0
        self._kind: Literal["stdout", "stderr"] = "stderr" if stream == "stderr" else "stdout"

    def feed(self, _: RunningCommand, __: int, data: bytes, /) -> None:
        """Receive bytes from the transport."""
        self._chunks.append(data)
        self.wake.set()

    def take(self, call: RunningCommand) -> list[Event] | None:
        """Return the events of the next bytes; None when there are no bytes."""
        if not self._chunks:
            return None
        data = self._chunks.popleft()
        call.acknowledge(STDOUT, len(data))
        return [Event(self._kind, data)] if self._stream != "both" else self._cut(data)

    def _cut(self, data: bytes) -> list[Event]:
        """Split interleaved bytes; each piece has a header with its stream in the top bit, and its length."""
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


async def read_log(link: Link, fields: dict[str, Any], stream: LogStream) -> AsyncGenerator[Event]:
    """Yield the events of one ``log`` request; leaving early ends it.

    If the lease expires meanwhile, the request is sent again for the rest.
    """
    taken = 0
    while True:
        rest = {**fields, "offset": fields["offset"] + taken}
        if "count" in fields:
            rest["count"] = fields["count"] - taken
        try:
            async with aclosing(_read(link, rest, stream)) as events:
                async for event in events:
                    taken += len(event.data)
                    yield event
        except LeaseExpired:
            if fields["offset"] < 0 or "since" in fields:  # it counts from an end that has moved
                raise
        else:
            return


async def _read(link: Link, fields: dict[str, Any], stream: LogStream) -> AsyncGenerator[Event]:
    sink = LogSink(stream)
    call = link.call("log", {**fields, "stream": STREAMS[stream]}, sink)
    call.answer.add_done_callback(lambda _: sink.wake.set())
    try:
        while True:
            over = call.answer.done()  # read first: all data arrives before the answer
            sink.wake.clear()
            while (events := sink.take(call)) is not None:
                for event in events:
                    yield event
            if over:
                raise_for_answer(call.answer.result(), f"the log of job {fields['job']}")
                return
            await sink.wake.wait()
    finally:
        call.cancel()


async def read_result(link: Link, status: JobStatus, max_output: int) -> Result:
    """Return the result of an ended job with up to ``max_output`` bytes of each stream, head and tail."""
    if status.result is None:
        raise ProtocolError("the guest reports a job as ended without its result")
    stdout, lost_out = await _output(link, status.id, "stdout", status.stdout_bytes, max_output)
    stderr, lost_err = await _output(link, status.id, "stderr", status.stderr_bytes, max_output)
    truncated: dict[Literal["stdout", "stderr"], Truncation] = {}
    if lost_out:
        truncated["stdout"] = Truncation(status.stdout_bytes, lost_out)
    if lost_err:
        truncated["stderr"] = Truncation(status.stderr_bytes, lost_err)
    return replace(status.result, stdout=stdout, stderr=stderr, truncated=truncated)


async def _output(link: Link, job: str, stream: LogStream, total: int, most: int) -> tuple[bytes, int]:
    """Return one stream, and the number of bytes that are left out of its middle."""
    if total <= most:
        return await _span(link, job, stream, 0, total), 0
    head = int(most * _HEAD)
    tail = most - head
    mark = f"\n[... {total - most} bytes omitted ...]\n".encode()
    start = await _span(link, job, stream, 0, head)
    return start + mark + await _span(link, job, stream, total - tail, tail), total - most


async def _span(link: Link, job: str, stream: LogStream, offset: int, count: int) -> bytes:
    if not count:
        return b""
    async with aclosing(read_log(link, {"job": job, "offset": offset, "count": count}, stream)) as events:
        return b"".join([event.data async for event in events])
