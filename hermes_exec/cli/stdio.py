"""Our standard streams on the event loop, with backpressure: a slow reader or writer slows the command down.

Other processes share the streams, so they are never made non-blocking. An output is opened a second time through
/proc/self/fd, where the kernel permits it, and an input is read only when it is readable.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from typing import TYPE_CHECKING

from hermes_exec.cli.console import note

if TYPE_CHECKING:
    from hermes_exec.observe.redact import Redactor, StreamRedactor
    from hermes_exec.terminal.stream import Stream

_READ = 1 << 20
_HOLD_S = 0.3
"""How long output is held back that may be the beginning of a secret."""


class Output:
    """One of our outputs. Writes bytes at once, and unchanged except for known secrets."""

    def __init__(self, fd: int, redactor: Redactor | None) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._filter: StreamRedactor | None = redactor.create_stream() if redactor else None
        self._lock = asyncio.Lock()
        self._late: asyncio.Task[None] | None = None
        self._own = -1
        self._socket: socket.socket | None = None
        mode = os.fstat(fd).st_mode
        if stat.S_ISSOCK(mode):
            self._socket = socket.socket(fileno=os.dup(fd))
        elif stat.S_ISFIFO(mode) or os.isatty(fd):
            with contextlib.suppress(OSError):  # no /proc, or no permission: writing may block
                flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
                self._own = os.open(f"/proc/self/fd/{fd}", flags)

    async def write(self, data: bytes) -> None:
        """Write all of it.

        Raises:
            BrokenPipeError: the reader has gone.
        """
        async with self._lock:
            await self._write(data if self._filter is None else self._filter.feed(data))
        if self._filter is not None:
            self._stop_waiting()
            if self._filter.pending_bytes:
                self._late = self._loop.create_task(self._write_late(self._filter))

    async def flush(self) -> None:
        """Write the held output; no more follows."""
        if self._filter is not None:
            self._stop_waiting()
            async with self._lock:
                await self._write(self._filter.flush())

    def close(self) -> None:
        """Close the second descriptor; the output itself stays open."""
        if self._own >= 0:
            os.close(self._own)
        if self._socket is not None:
            self._socket.close()

    async def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._send(view) :]
            except BlockingIOError:
                await self._writable()

    def _send(self, view: memoryview) -> int:
        if self._socket is not None:
            return self._socket.send(view, socket.MSG_DONTWAIT)
        return os.write(self._own if self._own >= 0 else self._fd, view)

    async def _writable(self) -> None:
        fd = self._socket.fileno() if self._socket is not None else self._own
        ready = self._loop.create_future()
        self._loop.add_writer(fd, _settle, ready)
        try:
            await ready
        finally:
            self._loop.remove_writer(fd)

    async def _write_late(self, held: StreamRedactor) -> None:
        await asyncio.sleep(_HOLD_S)
        async with self._lock:
            with contextlib.suppress(OSError):  # the next write raises it
                await self._write(held.flush())

    def _stop_waiting(self) -> None:
        # A task that is already writing continues, because it has taken the output.
        if self._late is not None and not self._lock.locked():
            self._late.cancel()


async def feed(stream: Stream, fd: int = 0) -> None:
    """Send our input to a command until it ends; waits while the command does not read."""
    try:
        while data := await read(fd):
            await stream.write(data)
    except OSError as error:  # a folder, or a terminal that another process owns now
        note(f"standard input: {error.strerror}")
    await stream.close_stdin()


async def read(fd: int) -> bytes:
    """Wait for input and return it; empty at the end of the input."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    try:
        loop.add_reader(fd, _settle, ready)
    except PermissionError:  # epoll(7): a file or a folder, which is always ready
        return os.read(fd, _READ)
    try:
        await ready
    finally:
        loop.remove_reader(fd)
    return os.read(fd, _READ)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
