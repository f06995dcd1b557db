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

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse

from hermes_exec._async import cancel_and_wait, create_or_rollback, shield_to_completion
from hermes_exec.errors import PlaceUnavailable
from hermes_exec.observe.redact import Redactor
from hermes_exec_agent.mcp.guardian import open_guardian
from hermes_exec_agent.mcp.json_lines import LineTooLong, MessageParser, encode_message
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
    from pathlib import Path

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from hermes_exec.config.secrets import Secret

    Incoming = SessionMessage | Exception

INHERITED = ("HOME", "LANG", "PATH")
"""Variables that every program gets."""
LONGEST_LINE = 16 << 20
_READ = 1 << 16
_TAIL = 1 << 16
"""Bytes of standard error that are kept."""
_SHOWN = 300
_MOST_UNANSWERED = 100
"""Requests of the server whose answers it has not read."""
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
        self._on_end = on_end
        self._read_limit_s = read_limit_s
        self._unanswered = 0
        self._tail = b""
        self._reason = ""
        self._process: asyncio.subprocess.Process | None = None

    @property
    def reason(self) -> str:
        """Why it ended, with the last line that it wrote to standard error, without the values of its variables."""
        code = self._process.returncode if self._process is not None else None
        tail = self._redactor.redact_bytes(self._tail).decode("utf-8", "replace")
        last = flatten(tail.rstrip().rpartition("\n")[2], _SHOWN)
        how = self._reason or ("it ended" if code is None else f"it ended with exit code {code}")
        return f"{how}: {last}" if last else how

    @asynccontextmanager
    async def run(
        self,
    ) -> AsyncGenerator[tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]]:
        """Start it, and yield the streams of its messages.

        Raises:
            PlaceUnavailable: it cannot be started.
        """
        async with open_guardian() as guardian:
            process = self._process = await create_or_rollback(self._start(), _stop)
            guardian.watch(process.pid)
            async with self._exchange(process) as streams:
                yield streams

    @asynccontextmanager
    async def _exchange(
        self, process: asyncio.subprocess.Process
    ) -> AsyncGenerator[tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]]:
        """Yield the streams of its messages, and end it with the block."""
        read_send, read_receive = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write_send, write_receive = anyio.create_memory_object_stream[SessionMessage](0)
        tasks = [
            asyncio.create_task(each)
            for each in (
                self._read_messages(process, read_send),
                self._write_messages(process, write_receive, read_send),
                self._read_errors(process),
            )
        ]
        try:
            yield read_receive, write_send
        finally:
            with anyio.CancelScope(shield=True):
                await shield_to_completion(_end(process, tasks), limit_s=None)
            for stream in (read_send, read_receive, write_send, write_receive):
                stream.close()

    async def _start(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        try:
            return await asyncio.create_subprocess_exec(
                *self._argv, stdin=pipe, stdout=pipe, stderr=pipe, env=self._env, cwd=self._cwd, start_new_session=True
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise PlaceUnavailable(f"{self._argv[0]} cannot be started: {why}") from None

    async def _read_messages(self, process: asyncio.subprocess.Process, into: MemoryObjectSendStream[Incoming]) -> None:
        parser = MessageParser(LONGEST_LINE)
        try:
            with into, contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                if process.stdout is None:
                    return
                while data := await process.stdout.read(_READ):
                    for message in parser.feed(data):
                        if not self._count_request(message):
                            return
                        await into.send(message)
        except LineTooLong as error:
            self._reason = f"it sent {error}"
        finally:
            self._on_end()

    def _count_request(self, message: Incoming) -> bool:
        """Return whether a message may be taken: a server that reads no answers may not send requests without end."""
        if isinstance(message, SessionMessage) and isinstance(message.message, JSONRPCRequest):
            self._unanswered += 1
        if self._unanswered <= _MOST_UNANSWERED:
            return True
        self._reason = f"it sent more than {_MOST_UNANSWERED} requests and read no answers"
        return False

    async def _write_messages(
        self,
        process: asyncio.subprocess.Process,
        messages: MemoryObjectReceiveStream[SessionMessage],
        reading: MemoryObjectSendStream[Incoming],
    ) -> None:
        try:
            async with messages:
                async for message in messages:
                    if process.stdin is not None:
                        process.stdin.write(encode_message(message))
                        async with asyncio.timeout(self._read_limit_s):
                            await process.stdin.drain()
                    if isinstance(message.message, JSONRPCResponse | JSONRPCError):
                        self._unanswered -= 1
        except TimeoutError:
            self._end_messages(reading, f"it did not read a message within {self._read_limit_s:g} s")
        except (OSError, RuntimeError):  # its input is closed
            reading.close()

    def _end_messages(self, reading: MemoryObjectSendStream[Incoming], reason: str) -> None:
        self._reason = reason
        reading.close()
        self._on_end()

    async def _read_errors(self, process: asyncio.subprocess.Process) -> None:
        if process.stderr is not None:
            while data := await process.stderr.read(_READ):
                self._tail = (self._tail + data)[-_TAIL:]


async def _end(process: asyncio.subprocess.Process, tasks: Sequence[asyncio.Task[None]]) -> None:
    await _stop(process)
    await asyncio.wait(tasks, timeout=_POLL_S)  # its last output is read
    await cancel_and_wait(tasks)
    transport = getattr(process, "_transport", None)
    if transport is not None:  # a process that it left may hold a pipe, and nothing public closes our end
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
