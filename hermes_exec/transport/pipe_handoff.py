"""Direct reading of a guest's pipe on the same machine, instead of sending its bytes over the link."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Protocol

from hermes_exec.guest.core import wire

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class PipeOwner(Protocol):
    """A call whose output can be read directly."""

    def check_position(self, channel: int, position: int) -> None:
        """Raise ``wire.DamageError`` unless ``position`` is the next expected offset of the stream."""

    def feed(self, channel: int, data: bytes) -> None:
        """Pass output to the sink."""

    def has_room(self, channel: int) -> bool:
        """Whether the window of this stream allows to read more."""
        ...

    def take_pipe(self, channel: int, payload: bytes) -> None:
        """Read a stream's pipe directly from here on; return it at once if it cannot be opened."""

    def return_pipe(self, channel: int) -> None:
        """Return a stream's pipe to the guest."""

    def release_pipes(self) -> None:
        """Close all pipes that are read directly."""


class PipeReader:
    """Reads a pipe to its end, or until the guest reclaims it, through a descriptor of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: PipeOwner, channel: int, payload: bytes) -> None:
        """Open the pipe; raise OSError when it does not exist, and wire.WireError on a malformed frame."""
        if len(payload) != wire.HANDOFF_FIELDS.size:
            raise wire.WireError("a malformed HANDOFF frame")
        self._loop = loop
        self._call = call
        self._channel = channel
        self._reading = False
        process, number, inode, position = wire.HANDOFF_FIELDS.unpack(payload)
        call.check_position(channel, position)
        self._fd = os.open(f"/proc/{process}/fd/{number}", _FLAGS)
        found = os.fstat(self._fd)
        if not stat.S_ISFIFO(found.st_mode) or found.st_ino != inode:
            os.close(self._fd)
            raise OSError("another process has that id here")
        self.resume()

    def resume(self) -> None:
        """Continue reading if the window has room."""
        if not self._reading and self._call.has_room(self._channel):
            self._reading = True
            self._loop.add_reader(self._fd, self._readable)

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _readable(self) -> None:
        try:
            data = os.read(self._fd, wire.CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._call.return_pipe(self._channel)
            return
        self._call.feed(self._channel, data)
        if not self._call.has_room(self._channel):
            self._pause()

    def close(self) -> None:
        """Stop reading and close the descriptor."""
        self._pause()
        os.close(self._fd)


class PipeHandoff:
    """The handed-off pipes of all calls of a link."""

    def __init__(self, calls: Mapping[int, PipeOwner], *, near: bool) -> None:
        self.shares_host = near
        self._calls = calls

    def on_frame(self, kind: int, channel: int, number: int, payload: bytes) -> None:
        """Handle a HANDOFF or RECLAIM frame."""
        if not self.shares_host or channel not in {wire.STDOUT, wire.STDERR}:
            raise wire.WireError("a HANDOFF frame for a stream that cannot be handed off")
        call = self._calls.get(number)
        if call is not None and kind == wire.HANDOFF:
            call.take_pipe(channel, payload)
        elif call is not None:
            call.return_pipe(channel)

    def release_all(self) -> None:
        """Stop all direct reading, before the guest reads again."""
        for call in self._calls.values():
            call.release_pipes()
