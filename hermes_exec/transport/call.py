"""One request to the guest, from sending it until its answer."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import OutcomeUnknown
from hermes_exec.guest.core import wire
from hermes_exec.transport.pipe_handoff import PipeReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hermes_exec.transport.protocol import GuestLink, RunningCommand, Sink


NEVER_RAN: dict[str, Any] = {"cancelled": True, "note": "it was cancelled before it was sent, so nothing ran"}
"""The answer to a request that was cancelled while the link was down."""


class LeaseExpired(OutcomeUnknown):
    """The client's lease expired while it was disconnected, so the guest ended all its work except jobs."""

    def __init__(self, lease_s: float) -> None:
        super().__init__(f"the connection was down for longer than the lease of {lease_s:g} s; only jobs kept running")


class GuestLost(OutcomeUnknown):
    """The guest is gone or can no longer be reached, because of ``why``."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the guest was lost while this ran ({why})")
        self.why = why


GRACE_S = 2.0
"""Default seconds between SIGTERM and SIGKILL."""
_OUT_OF_REACH_S = 5.0
"""Seconds between two checks, by a cancelled wait, whether the link is connected."""


class DiscardSink:
    """A sink for calls without output."""

    def feed(self, call: RunningCommand, channel: int, data: bytes, /) -> None:
        """Drop the bytes."""
        call.acknowledge(channel, len(data))


class GuestCall:
    """A request: its answer, output and input, and the state that a new connection resumes from."""

    __slots__ = (
        "_acknowledged", "_borrowed", "_consumed", "_drained", "_ended", "_link", "_on_overdue", "_overdue", "_queue",
        "_sent", "_written", "answer", "awaited", "cancelled", "frame", "number", "overdue", "received", "sink",
    )  # fmt: skip

    def __init__(
        self, link: GuestLink, number: int, frame: bytes, sink: Sink, on_overdue: Callable[[GuestCall], None]
    ) -> None:
        self.number = number
        self.frame = frame
        self.sink = sink
        self.answer: asyncio.Future[dict[str, Any]] = link.loop.create_future()
        self.received = [0, 0, 0]
        self.cancelled = False
        self.awaited = True
        """Whether a caller waits for its answer or its bytes; false for a session, which answers only on failure."""
        self.overdue = False
        """Whether the answer is due, by the clock of this machine."""
        self._overdue: asyncio.TimerHandle | None = None
        self._on_overdue = on_overdue
        self._link = link
        self._consumed = [0, 0, 0]
        self._acknowledged = [0, 0, 0]
        self._queue: deque[bytes | memoryview] = deque()  # input from offset _written on, not yet consumed by the guest
        self._written = 0
        self._sent = 0
        self._ended = False
        self._drained: asyncio.Future[None] | None = None
        self._borrowed: dict[int, PipeReader] = {}

    def check_position(self, channel: int, position: int) -> None:
        """Raise ``wire.DamageError`` unless ``position`` is the next expected offset of the stream."""
        if position != self.received[channel]:
            raise wire.DamageError(f"output continues at {position} after {self.received[channel]} bytes")

    def receive(self, channel: int, position: int, data: bytes) -> None:
        """Take output from the link; raise ``wire.DamageError`` unless it continues at the expected offset."""
        self.check_position(channel, position)
        self._link.damaged_connections = 0
        self.feed(channel, data)

    def start_deadline(self, within_s: float) -> None:
        """Report the call as overdue after ``within_s`` seconds."""
        if not self.overdue and not self.answer.done():
            if self._overdue is not None:
                self._overdue.cancel()
            self._overdue = self._link.loop.call_later(within_s, self._on_overdue, self)

    def abandon(self, error: Exception | None) -> None:
        """Fail with ``error``, or answer that nothing ran; the guest gets a CANCEL on the next connection."""
        self.discard()
        self._link.send(wire.frame(wire.CANCEL, 0, self.number))
        self.cancelled = True
        self.set_answer(NEVER_RAN) if error is None else self.set_error(error)

    def feed(self, channel: int, data: bytes) -> None:
        """Pass output to the sink."""
        self.received[channel] += len(data)
        self.sink.feed(self, channel, data)

    def acknowledge(self, channel: int, count: int) -> None:
        """Acknowledge ``count`` more bytes of output, so that the guest may send as many more.

        While a pipe is read directly, the guest sends nothing, and learns from RETURN what was consumed: a CREDIT would
        only wake it.
        """
        total = self._consumed[channel] = self._consumed[channel] + count
        if self._borrowed and channel in self._borrowed:
            self._borrowed[channel].resume()
        elif total - self._acknowledged[channel] >= wire.WINDOW // 4:
            self._acknowledged[channel] = total
            self._link.send(wire.frame(wire.CREDIT, channel, self.number, wire.OFFSET.pack(total)))

    def discard(self) -> None:
        """Consume present and future output unread: the guest sends its answer only after the last of it."""
        self.sink = DiscardSink()
        for channel, received in enumerate(self.received):
            self.acknowledge(channel, received - self._consumed[channel])

    def has_room(self, channel: int) -> bool:
        """Whether the window of this stream allows to read more."""
        return self.received[channel] - self._consumed[channel] < wire.WINDOW

    def take_pipe(self, channel: int, payload: bytes) -> None:
        """Read a stream's pipe directly from here on; return it at once if it cannot be opened."""
        try:
            self._borrowed[channel] = PipeReader(self._link.loop, self, channel, payload)
        except OSError:
            self.return_pipe(channel)

    def return_pipe(self, channel: int) -> None:
        """Return a stream's pipe to the guest, with the offset that was read up to."""
        borrowed = self._borrowed.pop(channel, None)
        if borrowed is not None:
            borrowed.close()
        self._acknowledged[channel] = self._consumed[channel]
        offsets = wire.RETURN_FIELDS.pack(self.received[channel], self._consumed[channel])
        self._link.send(wire.frame(wire.RETURN, channel, self.number, offsets))

    def release_pipes(self) -> None:
        """Close all pipes that are read directly; the guest is disconnected or has answered."""
        while self._borrowed:
            self._borrowed.popitem()[1].close()

    async def result(self) -> dict[str, Any]:
        """Wait for the answer.

        A cancelled wait first cancels the request, and returns when that has ended or the target is out of reach; it is
        then cancelled on the next connection.
        """
        try:
            return await self.answer
        except asyncio.CancelledError:
            if self.answer.cancelled():  # the waiting task was cancelled, not the request
                self.answer = self._link.loop.create_future()
                await self.end()
            raise

    async def end(self) -> None:
        """Cancel the request, and return when it has ended or the target is out of reach (see ``result``)."""
        self.cancel()
        await self._wait_within_reach()

    async def settle(self) -> None:
        """Return when the answer has arrived or the target is out of reach.

        Raises:
            OutcomeUnknown: the target was lost.
        """
        await self._wait_within_reach()
        if self.answer.done():
            self.answer.result()

    async def _wait_within_reach(self) -> None:
        while not self.answer.done():
            await asyncio.wait([self.answer], timeout=_OUT_OF_REACH_S)
            if not self._link.connected:
                break

    def cancel(self) -> None:
        """Ask the guest to cancel the request; the answer follows when it has ended."""
        if not self.answer.done() and not self.cancelled:
            self.cancelled = True
            self._link.send(wire.frame(wire.CANCEL, 0, self.number))
            self.start_deadline(GRACE_S)

    async def write(self, data: bytes) -> None:
        """Send input; wait while the window is full, and drop input that the command does not read."""
        view = memoryview(data)
        for start in range(0, len(data), wire.CHUNK):
            while self._sent - self._written >= wire.WINDOW and not self.answer.done():
                self._drained = self._drained or self._link.loop.create_future()
                await asyncio.shield(self._drained)  # other writers may await it too
            if self.answer.done():
                return
            piece = data if len(data) <= wire.CHUNK else view[start : start + wire.CHUNK]
            head = wire.HEADER.pack(len(piece), wire.DATA, wire.STDIN, self.number, self._sent)
            self._queue.append(piece)
            self._sent += len(piece)
            self._link.send(head, data=piece)
            await self._link.drain()

    def write_eof(self) -> None:
        """End the input."""
        self._ended = True
        self._link.send(self._eof())

    def _eof(self) -> bytes:
        return wire.frame(wire.EOF, wire.STDIN, self.number, wire.OFFSET.pack(self._sent))

    def on_credit(self, offset: int) -> None:
        """Handle CREDIT: the guest has consumed the input up to ``offset``."""
        while self._queue and self._written + len(self._queue[0]) <= offset:
            self._written += len(self._queue.popleft())
        if offset > self._sent:  # the input no longer has a reader
            self._written = self._sent
            self._queue.clear()
        self._wake()

    def _wake(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    def restart(self, frame: bytes) -> None:
        """Become the request of ``frame``, for a new guest."""
        self.frame = frame
        self.received, self._consumed, self._acknowledged = [0, 0, 0], [0, 0, 0], [0, 0, 0]
        self._queue.clear()
        self._written = self._sent = 0

    def resend(self, offset: int, *, known: bool) -> list[bytes]:
        """Return the frames for a new connection: the request unless ``known``, and input from ``offset``."""
        frames = [] if known else [self.frame]
        at = self._written
        for piece in self._queue:
            if at + len(piece) > offset:
                frames += self._cut(piece, max(0, offset - at), at)
            at += len(piece)
        if self._ended:
            frames.append(self._eof())
        if self.cancelled:
            frames.append(wire.frame(wire.CANCEL, 0, self.number))
        frames += [
            wire.frame(wire.CREDIT, channel, self.number, wire.OFFSET.pack(total))
            for channel, total in enumerate(self._consumed)
            if total
        ]
        return frames

    def _cut(self, piece: bytes | memoryview, start: int, at: int) -> Iterator[bytes]:
        """Yield input again in small frames, so that a short-lived connection still makes progress."""
        for begin in range(start, len(piece), wire.RESENT):
            data = bytes(piece[begin : begin + wire.RESENT])
            yield wire.frame(wire.DATA, wire.STDIN, self.number, data, at + begin)

    def set_answer(self, answer: dict[str, Any]) -> None:
        """Complete the call with its answer."""
        self._settle()
        pending = self._pending()
        if pending is not None:
            pending.set_result(answer)

    def set_error(self, error: Exception) -> None:
        """Complete the call with an error."""
        self._settle()
        pending = self._pending()
        if pending is not None:
            pending.set_exception(error)
            pending.exception()  # marks it as retrieved, or asyncio would log it when no task awaits it

    def _settle(self) -> None:
        self.release_pipes()
        self._wake()
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    def _pending(self) -> asyncio.Future[dict[str, Any]] | None:
        """Return the future for the outcome, or None when the call is complete.

        A waiting task that was just cancelled has cancelled the future and has not run yet: it then awaits the new
        one, and so finds an answer that arrived in between.
        """
        if self.answer.cancelled():
            self.answer = self._link.loop.create_future()
        return None if self.answer.done() else self.answer
