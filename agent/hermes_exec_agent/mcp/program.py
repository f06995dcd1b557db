"""A server as a program of this machine, whose messages go over its standard input and output.

It gets the variables that its configuration names, and those without which hardly a program starts. A message of more
than 16 MiB ends the connection, and so do more than 100 requests of it whose answers it does not read. At the end its
input is closed, and processes of it that still run are ended, also if this program is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from hermes_exec._async import create_or_rollback
from hermes_exec.errors import PlaceUnavailable
from hermes_exec.observe.redact import Redactor
from hermes_exec_agent.mcp.guardian import open_guardian
from hermes_exec_agent.mcp.message_exchange import MessageExchange
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
    from pathlib import Path

    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.mcp.message_exchange import Streams

INHERITED = ("HOME", "LANG", "PATH")
"""Variables that every program gets."""
_READ = 1 << 16
_TAIL = 1 << 16
"""Bytes of standard error that are kept."""
_SHOWN = 300
_END_S = 2.0
"""Seconds after each step of the end: its input is closed, then SIGTERM, then SIGKILL."""
_POLL_S = 0.01


class Program:
    """A program that is started for one connection."""

    def __init__(
        self,
        argv: Sequence[str],
        variables: Mapping[str, Secret],
        cwd: Path | None,
        on_end: Callable[[], None],
        read_limit_s: float,
    ) -> None:
        """Keep the settings of a program.

        Args:
            argv: the program and its arguments.
            variables: its variables, in addition to `INHERITED`.
            cwd: its working directory.
            on_end: called once no further message can come.
            read_limit_s: seconds in which it has to read a message.
        """
        self._argv = tuple(argv)
        self._env = {name: os.environ[name] for name in INHERITED if name in os.environ} | {
            name: value.reveal() for name, value in variables.items()
        }
        self._redactor = Redactor(variables.values())
        self._cwd = cwd
        self._exchange = MessageExchange(on_end, read_limit_s)
        self._tail = b""
        self._process: asyncio.subprocess.Process | None = None

    @property
    def reason(self) -> str:
        """Why it ended, with the last line that it wrote to standard error, without the values of its variables."""
        code = self._process.returncode if self._process is not None else None
        tail = self._redactor.redact_bytes(self._tail).decode("utf-8", "replace")
        last = flatten(tail.rstrip().rpartition("\n")[2], _SHOWN)
        how = self._exchange.reason or ("it ended" if code is None else f"it ended with exit code {code}")
        return f"{how}: {last}" if last else how

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[Streams]:
        """Start it, and yield the streams of its messages.

        Raises:
            PlaceUnavailable: it cannot be started.
        """
        async with open_guardian() as guardian:
            process = self._process = await create_or_rollback(self._start(), _stop)
            guardian.watch(process.pid)
            errors = asyncio.create_task(self._read_errors(process))
            stdin, stdout = process.stdin, process.stdout
            if stdin is None or stdout is None:
                raise PlaceUnavailable(f"{self._argv[0]} has no streams")

            async def write(data: bytes) -> None:
                stdin.write(data)
                await stdin.drain()

            try:
                async with self._exchange.run(
                    lambda: stdout.read(_READ), write, lambda: _close(process), errors
                ) as streams:
                    yield streams
            finally:
                guardian.leave(process.pid)

    async def _start(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        try:
            return await asyncio.create_subprocess_exec(
                *self._argv, stdin=pipe, stdout=pipe, stderr=pipe, env=self._env, cwd=self._cwd, start_new_session=True
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            remedy = "install it, or give its full path" if isinstance(error, FileNotFoundError) else ""
            raise PlaceUnavailable(f"{self._argv[0]} cannot be started: {why}", remedy=remedy) from None

    async def _read_errors(self, process: asyncio.subprocess.Process) -> None:
        if process.stderr is not None:
            while data := await process.stderr.read(_READ):
                self._tail = (self._tail + data)[-_TAIL:]


async def _close(process: asyncio.subprocess.Process) -> None:
    """End it, and close our ends of its pipes, which a process that it left may hold."""
    await _stop(process)
    await asyncio.sleep(_POLL_S)  # its last output is read
    transport = getattr(process, "_transport", None)
    if transport is not None:  # nothing public closes our end
        with contextlib.suppress(PermissionError):
            transport.close()


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Close its input; end it and all that it started in its group if it does not end by itself."""
    if process.stdin is not None:
        process.stdin.close()
    if await _has_ended(process):
        _signal(process, signal.SIGKILL)
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal(process, number)
        if await _has_ended(process):
            break
    _signal(process, signal.SIGKILL)


async def _has_ended(process: asyncio.subprocess.Process) -> bool:
    """Return whether it ends in time. ``Process.wait`` would also wait for those that hold its pipes."""
    give_up = asyncio.get_running_loop().time() + _END_S
    while process.returncode is None:
        if asyncio.get_running_loop().time() > give_up:
            return False
        await asyncio.sleep(_POLL_S)
    return True


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
