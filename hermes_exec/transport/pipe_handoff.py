"""A pipe of a place on this very machine, which we read ourselves instead of having it sent."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from hermes_exec.guest.core import wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec.transport.call import Call
    from hermes_exec.transport.link import Link

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Borrowed:
    """Reads until the end, or until the guest wants it back; then says how far it has read.

    A descriptor of our own on the same pipe, so that the guest's is not disturbed.
    """

    def __init__(self, link: Link, call: Call, channel: int, payload: bytes) -> None:
        """Raises OSError when there is no such pipe, and wire.WireError on a frame that is none."""
        if len(payload) != wire.LENT.size:
            raise wire.WireError("a loan that is none")
        self._link = link
        self._call = call
        self._channel = channel
        self._reading = False
        process, number, inode, position = wire.LENT.unpack(payload)
        call.expect(channel, position)
        self._fd = os.open(f"/proc/{process}/fd/{number}", _FLAGS)
        found = os.fstat(self._fd)
        if not stat.S_ISFIFO(found.st_mode) or found.st_ino != inode:
            os.close(self._fd)
            raise OSError("another process has that number here")
        self.go_on()

    def go_on(self) -> None:
        """Read on if the reader has room."""
        if not self._reading and self._call.room(self._channel):
            self._reading = True
            self._link.loop.add_reader(self._fd, self._readable)

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._link.loop.remove_reader(self._fd)

    def _readable(self) -> None:
        try:
            data = os.read(self._fd, wire.CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._call.give_back(self._channel)
            return
        self._call.feed(self._channel, data)
        if not self._call.room(self._channel):
            self._pause()

    def close(self) -> None:
        """Read no more."""
        self._pause()
        os.close(self._fd)


class Loans:
    """The lent pipes of all calls."""

    def __init__(self, calls: Mapping[int, Call], *, near: bool) -> None:
        self.near = near
        self._calls = calls

    def told(self, kind: int, channel: int, number: int, payload: bytes) -> None:
        """A LEND or RECALL frame came."""
        if not self.near or channel not in {wire.STDOUT, wire.STDERR}:
            raise wire.WireError("a loan that nobody can take")
        call = self._calls.get(number)
        if call is not None and kind == wire.LEND:
            call.borrow(channel, payload)
        elif call is not None:
            call.give_back(channel)

    def let_go(self) -> None:
        """Read none of them any more, before the guest does."""
        for call in self._calls.values():
            call.let_go()
