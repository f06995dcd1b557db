"""The handle of a sandbox in which a program waits, and its implementation with two pipes.

Each kind of target has its own way to start a sandbox and to learn of its end. ``Run`` uses this protocol alone.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import IO, TYPE_CHECKING, Protocol

from hermes_exec_backends.sandbox.control import fill_and_seal, wait_readable

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from hermes_exec_backends.sandbox.control import LauncherSocket

STDOUT, STDERR = 1, 2
_READ = 64 << 10
_SILENT_S = 60.0


class SandboxHandle(Protocol):
    """A sandbox in which a program waits."""

    @property
    def first(self) -> int:
        """The outside number of the sandbox's process 1, or of the process whose death ends the sandbox."""
        ...

    @property
    def pid(self) -> int:
        """The outside number of the process that becomes the program."""
        ...

    def begin(self, output: Callable[[int, bytes], None], stdin: bytes | None) -> None:
        """Let it become the program. ``output`` is called with the stream and each piece of data that it writes.

        ``stdin`` is its whole standard input, if that was left open at the start.
        """
        ...

    async def wait_status(self) -> tuple[int | None, str]:
        """Wait for its wait status, None if unknown, and the reason if it could not be started."""
        ...

    async def wait_gone(self) -> None:
        """Wait until every process in the sandbox has ended and all output was passed on."""
        ...

    async def release(self) -> None:
        """Release the resources of the sandbox, in which nothing runs."""
        ...


class PipedSandbox:
    """A sandbox that a child process (bwrap, apptainer) runs, with a pipe for each output and the launcher's socket."""

    def __init__(
        self, process: subprocess.Popen[bytes], control: LauncherSocket, first: int, stdin: IO[bytes] | None = None
    ) -> None:
        """The last sender on ``control`` becomes the program; ``stdin`` is an empty file to fill."""
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
            fill_and_seal(self._stdin.fileno(), stdin or b"")
        for kind, stream in enumerate(output_streams(self._process), STDOUT):
            os.set_blocking(stream.fileno(), False)
            self._open[stream.fileno()] = kind
            self._loop.add_reader(stream, self._readable, stream.fileno())
        self._control.send(b"go")

    async def wait_status(self) -> tuple[int | None, str]:
        """See ``Held``."""
        message = await self._control.receive()
        kind, _, value = message.partition(b" ")
        if kind == b"failed":
            return None, value.decode("utf-8", "replace")
        # The program cannot reach the socket. If it could, a forged message would only falsify the exit code.
        return (int(value) & 0xFFFF if kind == b"ended" and value.isdigit() and len(value) < 9 else None), ""

    async def wait_gone(self) -> None:
        """See ``Held``."""
        self._control.send(b"bye")  # process 1 ends, and all other processes with it
        try:
            await wait_for_exit(self._process)
            if self._open:
                async with asyncio.timeout(_SILENT_S):
                    await self._silent.wait()
        finally:
            for fd in self._open:
                self._loop.remove_reader(fd)

    async def release(self) -> None:
        """See ``Held``."""
        await wait_for_exit(self._process)
        self._control.close()
        for stream in output_streams(self._process):
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


def output_streams(process: subprocess.Popen[bytes]) -> list[IO[bytes]]:
    """Our ends of the pipes of its outputs."""
    return [stream for stream in (process.stdout, process.stderr) if stream is not None]


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill bwrap or another runtime with its process group.

    A child of bwrap that still waits for its parent would not notice its death and wait forever.
    """
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


async def wait_for_exit(process: subprocess.Popen[bytes]) -> None:
    """Wait until bwrap or another runtime has exited, which it does after every process in the sandbox."""
    if process.poll() is not None:
        return
    fd = os.pidfd_open(process.pid)
    try:
        await wait_readable(fd)
    finally:
        os.close(fd)
    process.wait()
