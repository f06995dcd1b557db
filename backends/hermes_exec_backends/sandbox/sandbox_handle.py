"""What holds a program ready in its sandbox, as the one who watches it needs it; and the one with two pipes.

Each kind of place has its own way to start a sandbox and to hear of it. ``Run`` knows none of them.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import IO, TYPE_CHECKING, Protocol

from hermes_exec_backends.sandbox.control import fill, readable

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from hermes_exec_backends.sandbox.control import Control

STDOUT, STDERR = 1, 2
_READ = 64 << 10
_SILENT_S = 60.0


class Held(Protocol):
    """A sandbox in which a program waits."""

    @property
    def first(self) -> int:
        """The number outside of process 1 of the sandbox, or of what ends all of it when it is killed."""
        ...

    @property
    def pid(self) -> int:
        """The number outside of the process that becomes the program."""
        ...

    def begin(self, output: Callable[[int, bytes], None], stdin: bytes | None) -> None:
        """Let it become the program; what it writes goes to ``output`` from now on.

        ``stdin`` is all that it can read, where that was not said at the start.
        """
        ...

    async def told(self) -> tuple[int | None, str]:
        """Wait for its wait status, which is None where nobody knows it; or for why it was not started."""
        ...

    async def over(self) -> None:
        """Wait until everything in the sandbox is dead, and all of its output was handed on."""
        ...

    async def let_go(self) -> None:
        """Give back all that it took to make it. Nothing runs in it any more."""
        ...


class Piped:
    """A sandbox of a program of ours (bwrap, apptainer), with a pipe for each output and the launcher's socket."""

    def __init__(
        self, process: subprocess.Popen[bytes], control: Control, first: int, stdin: IO[bytes] | None = None
    ) -> None:
        """The program waits as the process that spoke last on ``control``; ``stdin`` is a file that is to be filled."""
        self._stdin = stdin
        self.first = first
        self.pid = control.pid
        self._process = process
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._output: Callable[[int, bytes], None] = lambda _kind, _data: None
        self._open: dict[int, int] = {}
        self._silent = asyncio.Event()

    def begin(self, output: Callable[[int, bytes], None], stdin: bytes | None) -> None:
        """See ``Held``."""
        self._output = output
        if self._stdin is not None:
            fill(self._stdin.fileno(), stdin or b"")
        for kind, stream in enumerate(streams(self._process), STDOUT):
            os.set_blocking(stream.fileno(), False)
            self._open[stream.fileno()] = kind
            self._loop.add_reader(stream, self._readable, stream.fileno())
        self._control.send(b"go")

    async def told(self) -> tuple[int | None, str]:
        """See ``Held``."""
        message = await self._control.receive()
        kind, _, value = message.partition(b" ")
        if kind == b"failed":
            return None, value.decode("utf-8", "replace")
        # A program cannot reach the socket; but it is told from inside, so a lie may cost no more than a wrong code.
        return (int(value) & 0xFFFF if kind == b"ended" and value.isdigit() and len(value) < 9 else None), ""

    async def over(self) -> None:
        """See ``Held``."""
        self._control.send(b"bye")  # process 1 ends, and takes all that is left along
        try:
            await gone(self._process)
            if self._open:
                async with asyncio.timeout(_SILENT_S):
                    await self._silent.wait()
        finally:
            for fd in self._open:
                self._loop.remove_reader(fd)

    async def let_go(self) -> None:
        """See ``Held``."""
        await gone(self._process)
        self._control.close()
        for stream in streams(self._process):
            stream.close()
        if self._stdin is not None:
            self._stdin.close()

    def _readable(self, fd: int) -> None:
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return
        if data:
            self._output(self._open[fd], data)
            return
        self._loop.remove_reader(fd)
        del self._open[fd]
        if not self._open:
            self._silent.set()


def streams(process: subprocess.Popen[bytes]) -> list[IO[bytes]]:
    """Our ends of its outputs."""
    return [stream for stream in (process.stdout, process.stderr) if stream is not None]


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill bwrap or another runtime, which leads a group, with what it has just started.

    A child of bwrap's that waits for its first word would not notice, and wait for ever.
    """
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


async def gone(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of bwrap or another runtime, which comes once everything in the sandbox is dead."""
    if process.poll() is not None:
        return
    fd = os.pidfd_open(process.pid)
    try:
        await readable(fd)
    finally:
        os.close(fd)
    process.wait()
