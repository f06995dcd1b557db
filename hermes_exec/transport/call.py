"""One request to the guest, from the moment it is sent until its answer is there."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import OutcomeUnknown
from hermes_exec.guest.core import wire
from hermes_exec.transport.pipe_handoff import Borrowed
from hermes_exec.transport.protocol import check_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermes_exec.transport.link import Link
    from hermes_exec.transport.protocol import Running, Sink


NEVER_RAN: dict[str, Any] = {"cancelled": True, "note": "it was ended before the place was told of it, so nothing ran"}
"""The answer to a request that was cancelled while the link was down."""


class Lapsed(OutcomeUnknown):
    """We were away for longer than our lease, so the guest ended all that was ours but jobs; the link goes on."""

    def __init__(self, lease_s: float) -> None:
        super().__init__(f"nobody was there for longer than the lease of {lease_s:g} s, and only jobs went on")


class Lost(OutcomeUnknown):
    """The guest is gone, or nobody can get to it any more, because of ``why``."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the guest was lost while this ran ({why})")
        self.why = why


GRACE_S = 2.0
"""Seconds between TERM and KILL that a guest takes where it is given none."""
_OUT_OF_REACH_S = 5.0
"""How often a cancelled wait looks whether the place is within reach at all."""


class Discard:
    """A sink for calls that have no output."""

    def feed(self, call: Running, channel: int, data: bytes, /) -> None:
        """Drop the bytes."""
        call.consumed(channel, len(data))


class Call:
    """A request: its answer, its output through a sink, its input, and what a new connection needs of it."""

    __slots__ = (
        "_borrowed", "_consumed", "_drained", "_ended", "_link", "_overdue", "_queue", "_sent", "_told", "_written",
        "answer", "awaited", "cancelled", "frame", "number", "overdue", "received", "sink",
    )  # fmt: skip

    def __init__(self, link: Link, number: int, frame: bytes, sink: Sink) -> None:
        check_loop(link.loop)
        self.number = number
        self.frame = frame
        self.sink = sink
        self.answer: asyncio.Future[dict[str, Any]] = link.loop.create_future()
        self.received = [0, 0, 0]
        self.cancelled = False
        self.awaited = True
        """Whether somebody waits for its answer or its bytes; false of a session, which answers only on failure."""
        self.overdue = False
        """Whether the guest should have answered by now, as far as the clock here says."""
        self._overdue: asyncio.TimerHandle | None = None
        self._link = link
        self._consumed = [0, 0, 0]
        self._told = [0, 0, 0]
        self._queue: deque[bytes | memoryview] = deque()  # input that the guest has not taken, from offset _written on
        self._written = 0
        self._sent = 0
        self._ended = False
        self._drained: asyncio.Future[None] | None = None
        self._borrowed: dict[int, Borrowed] = {}

    def expect(self, channel: int, position: int) -> None:
        """Raise ``wire.DamageError`` unless a stream goes on where we are."""
        if position != self.received[channel]:
            raise wire.DamageError(f"output goes on at {position} after {self.received[channel]} bytes")

    def receive(self, channel: int, position: int, data: bytes) -> None:
        """Bytes of output came over the link; raises ``wire.DamageError`` unless they follow those before."""
        self.expect(channel, position)
        self._link.damages = 0
        self.feed(channel, data)

    def expect_answer(self, within_s: float) -> None:
        """Have the link give it up after so many seconds, should the place be out of reach then for too long."""
        if not self.overdue and not self.answer.done():
            if self._overdue is not None:
                self._overdue.cancel()
            self._overdue = self._link.loop.call_later(within_s, self._link.watch.fall_due, self)

    def give_up(self, error: Exception | None) -> None:
        """End it here with ``error``, or as a request that never ran; when the place is reached it is ended there."""
        self.discard()
        self._link.send(wire.frame(wire.CANCEL, 0, self.number))
        self.cancelled = True
        self.answered(NEVER_RAN) if error is None else self.failed(error)

    def feed(self, channel: int, data: bytes) -> None:
        """Bytes of output came."""
        self.received[channel] += len(data)
        self.sink.feed(self, channel, data)

    def consumed(self, channel: int, count: int) -> None:
        """``count`` more bytes of the output are used up; the guest may send as many more."""
        total = self._consumed[channel] = self._consumed[channel] + count
        if total - self._told[channel] >= wire.WINDOW // 4:
            self._told[channel] = total
            self._link.send(wire.frame(wire.CREDIT, channel, self.number, wire.OFFSET.pack(total)))
        if self._borrowed and channel in self._borrowed:
            self._borrowed[channel].go_on()

    def discard(self) -> None:
        """Use up what came and what will: nobody takes it, and the place answers only behind the last of it."""
        self.sink = Discard()
        for channel, received in enumerate(self.received):
            self.consumed(channel, received - self._consumed[channel])

    def room(self, channel: int) -> bool:
        """Whether more of this output may be read before some of it is used up."""
        return self.received[channel] - self._consumed[channel] < wire.WINDOW

    def borrow(self, channel: int, payload: bytes) -> None:
        """Read a stream's pipe ourselves from here on; where that cannot be, it is given back at once."""
        try:
            self._borrowed[channel] = Borrowed(self._link, self, channel, payload)
        except OSError:
            self.give_back(channel)

    def give_back(self, channel: int) -> None:
        """Let the guest read a stream's pipe again, from where we are."""
        borrowed = self._borrowed.pop(channel, None)
        if borrowed is not None:
            borrowed.close()
        offsets = wire.RETURNED.pack(self.received[channel], self._consumed[channel])
        self._link.send(wire.frame(wire.RETURN, channel, self.number, offsets))

    def let_go(self) -> None:
        """Read no pipe ourselves any more: the guest is out of reach, or has answered."""
        while self._borrowed:
            self._borrowed.popitem()[1].close()

    async def result(self) -> dict[str, Any]:
        """Wait for the answer.

        A cancelled wait ends what was asked for, and returns when it is gone, or when the place is out of
        reach: it is then ended as soon as it is reached.
        """
        try:
            return await self.answer
        except asyncio.CancelledError:
            if self.answer.cancelled():  # the task that waited, not the request
                self.answer = self._link.loop.create_future()
                await self.end()
            raise

    async def end(self) -> None:
        """End what was asked for, and return when it is gone, or when the place is out of reach (see ``result``)."""
        self.cancel()
        await self._wait_within_reach()

    async def settle(self) -> None:
        """Return when the answer is there, or when the place is out of reach: it is then asked again as soon as it is.

        Raises:
            OutcomeUnknown: the place was lost.
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
        """Ask the guest to end it; the answer follows when it is gone."""
        if not self.answer.done() and not self.cancelled:
            self.cancelled = True
            self._link.send(wire.frame(wire.CANCEL, 0, self.number))
            self.expect_answer(GRACE_S)

    async def write(self, data: bytes) -> None:
        """Send input, waiting while the place takes no more; what the command does not read is dropped."""
        view = memoryview(data)
        for start in range(0, len(data), wire.CHUNK):
            while self._sent - self._written >= wire.WINDOW and not self.answer.done():
                self._drained = self._drained or self._link.loop.create_future()
                await asyncio.shield(self._drained)  # which other writers may wait for too
            if self.answer.done():
                return
            piece = data if len(data) <= wire.CHUNK else view[start : start + wire.CHUNK]
            head = wire.HEADER.pack(len(piece), wire.DATA, wire.STDIN, self.number, self._sent)
            self._queue.append(piece)
            self._sent += len(piece)
            self._link.send(head, data=piece)
            await self._link.drained()

    def write_eof(self) -> None:
        """The input ends here."""
        self._ended = True
        self._link.send(self._eof())

    def _eof(self) -> bytes:
        return wire.frame(wire.EOF, wire.STDIN, self.number, wire.OFFSET.pack(self._sent))

    def credited(self, offset: int) -> None:
        """The guest has taken the input up to ``offset``."""
        while self._queue and self._written + len(self._queue[0]) <= offset:
            self._written += len(self._queue.popleft())
        if offset > self._sent:  # nobody reads any more
            self._written = self._sent
            self._queue.clear()
        self._wake()

    def _wake(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    def begin_anew(self, frame: bytes) -> None:
        """Be what ``frame`` asks for, of a guest that knows nothing of it."""
        self.frame = frame
        self.received, self._consumed, self._told = [0, 0, 0], [0, 0, 0], [0, 0, 0]
        self._queue.clear()
        self._written = self._sent = 0

    def resend(self, offset: int, *, known: bool) -> list[bytes]:
        """What a new connection has to send: the request unless ``known``, and input from ``offset``."""
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
        """Input again, in small frames, so that a connection that soon breaks has brought some of it."""
        for begin in range(start, len(piece), wire.RESENT):
            data = bytes(piece[begin : begin + wire.RESENT])
            yield wire.frame(wire.DATA, wire.STDIN, self.number, data, at + begin)

    def answered(self, answer: dict[str, Any]) -> None:
        """The outcome is there."""
        self._settle()
        pending = self._pending()
        if pending is not None:
            pending.set_result(answer)

    def failed(self, error: Exception) -> None:
        """There will be no answer."""
        self._settle()
        pending = self._pending()
        if pending is not None:
            pending.set_exception(error)
            pending.exception()  # looked at, so that asyncio does not complain when nobody awaits it

    def _settle(self) -> None:
        self.let_go()
        self._wake()
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    def _pending(self) -> asyncio.Future[dict[str, Any]] | None:
        """Where the outcome goes, if it is not there yet.

        A task that was cancelled a moment ago has cancelled the future and not woken up yet: it looks at the
        new one, where it would otherwise wait for an answer that has come.
        """
        if self.answer.cancelled():
            self.answer = self._link.loop.create_future()
        return None if self.answer.done() else self.answer
