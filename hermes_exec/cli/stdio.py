"""Our own standard streams on the event loop: whoever reads or writes them slowly makes the command wait.

They are shared with other processes, so they are never made non-blocking: an output is opened a second
time where the kernel has a way (/proc/self/fd), and an input is read only when something is there.
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
_PATIENCE_S = 0.3
"""How long the beginning of what may become a secret is held back from a person who waits."""


class Output:
    """One of our outputs. Bytes go out at once and unchanged but for known secrets."""

    def __init__(self, fd: int, redactor: Redactor | None) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._filter: StreamRedactor | None = redactor.stream() if redactor else None
        self._lock = asyncio.Lock()
        self._late: asyncio.Task[None] | None = None
        self._own = -1
        self._socket: socket.socket | None = None
        mode = os.fstat(fd).st_mode
        if stat.S_ISSOCK(mode):
            self._socket = socket.socket(fileno=os.dup(fd))
        elif stat.S_ISFIFO(mode) or os.isatty(fd):
            with contextlib.suppress(OSError):  # no /proc, or not ours to open: writing may block, no more
                flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
                self._own = os.open(f"/proc/self/fd/{fd}", flags)

    async def write(self, data: bytes) -> None:
        """Write all of it.

        Raises:
            BrokenPipeError: whoever read it is gone.
        """
        async with self._lock:
            await self._write(data if self._filter is None else self._filter.feed(data))
        if self._filter is not None:
            self._stop_waiting()
            if self._filter.held:
                self._late = self._loop.create_task(self._let_go(self._filter))

    async def flush(self) -> None:
        """Write what was held back; the end."""
        if self._filter is not None:
            self._stop_waiting()
            async with self._lock:
                await self._write(self._filter.flush())

    def close(self) -> None:
        """Let go of what was opened here; the output itself stays open."""
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

    async def _let_go(self, held: StreamRedactor) -> None:
        await asyncio.sleep(_PATIENCE_S)
        async with self._lock:
            with contextlib.suppress(OSError):  # the next write tells
                await self._write(held.flush())

    def _stop_waiting(self) -> None:
        # One that is writing already goes on: what it took must come out.
        if self._late is not None and not self._lock.locked():
            self._late.cancel()


async def feed(stream: Stream, fd: int = 0) -> None:
    """Give a command what comes on our input, until it ends; waits while the command does not read."""
    try:
        while data := await read(fd):
            await stream.write(data)
    except OSError as error:  # a folder, or a terminal that is another one's by now: nothing more comes
        note(f"standard input: {error.strerror}")
    await stream.close_stdin()


async def read(fd: int) -> bytes:
    """What there is on an input; waits for it, and is empty at its end."""
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
