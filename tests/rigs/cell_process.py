"""A program that runs in a cell: our ends of its streams, and how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import termios
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from tests.rigs.cell import Cell

_READ = 256 << 10
_PIPE = 1 << 20


class Process:
    """Its streams are descriptors of ours, which do not block: ``stdin``, ``stdout`` and ``stderr``, or one ``pty``.

    Whoever started it closes them. An exit does not wait for them: what a child in the background holds stays open.
    """

    def __init__(self, cell: Cell, stdin: int, stdout: int, stderr: int, pty: int) -> None:
        self.stdin, self.stdout, self.stderr, self.pty = stdin, stdout, stderr, pty
        self.pid = 0
        """As the cell counts."""
        self.number = 0
        self._cell = cell
        self._exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @classmethod
    def prepare(cls, cell: Cell, pty: tuple[int, int] | None) -> tuple[Self, list[int]]:
        """A process that is to be started, and the three descriptors that it gets, of which some may be the same."""
        if pty is not None:
            ours, theirs = os.openpty()
            _resize(ours, *pty)
            os.set_blocking(ours, False)
            return cls(cell, -1, -1, -1, ours), [theirs] * 3
        (stdin, write), (out, stdout), (err, stderr) = os.pipe(), os.pipe(), os.pipe()
        for fd in (write, out, err):
            os.set_blocking(fd, False)
        with contextlib.suppress(OSError):  # an unprivileged user has only so many large ones
            for fd in (write, out):
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE)
        return cls(cell, write, out, err, -1), [stdin, stdout, stderr]

    @property
    def code(self) -> int | None:
        """How it ended: its exit code, or a signal's number below zero; None while it runs."""
        return self._exit.result() if self._exit.done() else None

    def on_exit(self, code: int) -> None:
        """The cell's word that it has ended."""
        if not self._exit.done():
            self._exit.set_result(code)

    async def wait(self) -> int:
        """Wait for its end; see ``code``."""
        return await asyncio.shield(self._exit)

    async def kill(self, signal: int = 9) -> None:
        """Send it a signal, if it is still there."""
        await self._cell.signal(self, signal)

    def resize(self, rows: int, columns: int) -> None:
        """Give its terminal another size; it is told by SIGWINCH."""
        _resize(self.pty, rows, columns)

    def close(self) -> None:
        """Close our ends of its streams. Safe to call twice."""
        for name in ("stdin", "stdout", "stderr", "pty"):
            self.close_one(name)

    def close_one(self, name: str) -> None:
        """Close one of them, such as its ``stdin``."""
        fd = getattr(self, name)
        setattr(self, name, -1)
        if fd >= 0:
            os.close(fd)

    async def communicate(self, data: bytes = b"") -> tuple[int, bytes, bytes]:
        """Feed it, read both outputs to their ends, and wait: its code and what it said."""
        assert self.pty < 0
        _, out, err = await asyncio.gather(self._feed(data), read_all(self.stdout), read_all(self.stderr))
        code = await self.wait()
        self.close()
        return code, out, err

    async def _feed(self, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):
            await write_all(self.stdin, data)
        self.close_one("stdin")


async def readable(fd: int) -> None:
    """Return when reading ``fd`` would not block."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)


async def read_some(fd: int) -> bytes:
    """What can be read by now, waiting until something can; nothing at its end."""
    while True:
        try:
            return os.read(fd, _READ)
        except BlockingIOError:
            await readable(fd)
        except OSError:  # a terminal whose other end nobody has any more
            return b""


async def read_all(fd: int) -> bytes:
    """Everything up to the end."""
    parts: list[bytes] = []
    while part := await read_some(fd):
        parts.append(part)
    return b"".join(parts)


async def write_all(fd: int, data: bytes) -> None:
    """Write everything, at the reader's pace.

    Raises:
        BrokenPipeError: nobody reads.
    """
    loop = asyncio.get_running_loop()
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            ready = asyncio.Event()
            loop.add_writer(fd, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_writer(fd)


def _resize(fd: int, rows: int, columns: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
