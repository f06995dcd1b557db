"""A session without a live shell: where commands start, and the order in which they run."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from hermes_exec.transport.shell.launch import LaunchSpec, merge_env
from hermes_exec.transport.shell.target import resolve_path

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from hermes_exec.transport.shell.command import SpawnedCommand
    from hermes_exec.transport.shell.target import ShellTarget

_CLOSE_GRACE_S = 0.5


class TaskHandle:
    """A ``Running`` without streams, for work that is not a command."""

    def __init__(self, number: int, work: Coroutine[Any, Any, dict[str, Any]]) -> None:
        self.number = number
        self._task = asyncio.get_running_loop().create_task(work)

    async def result(self) -> dict[str, Any]:
        """Wait for the answer."""
        return await asyncio.shield(self._task)

    async def write(self, data: bytes, /) -> None:
        """Ignore input, which has no reader."""

    def write_eof(self) -> None:
        """Ignore the end of input, which has no reader."""

    def acknowledge(self, channel: int, count: int, /) -> None:
        """Do nothing, as there is no output."""

    def cancel(self) -> None:
        """Do nothing, as the work ends by itself."""

    async def settle(self) -> None:
        """Wait for its end."""
        await self.result()

    async def end(self) -> None:
        """Wait for its end, as it cannot be ended earlier."""
        await asyncio.wait([self._task])


class StatelessSession:
    """A session whose commands start from its own folder and variables, one after the other."""

    def __init__(self, place: ShellTarget, arguments: Mapping[str, Any]) -> None:
        shell = arguments.get("shell") or (place.bash or place.shell).encode()
        self._words = (shell, b"-l") if arguments.get("login") else (shell,)
        self._cwd = resolve_path(arguments.get("cwd") or b"", place.cwd)
        self._env = merge_env(place.env, arguments)
        lines: list[bytes] = arguments.get("setup") or []
        setup = b"".join(line + b"\n" for line in lines)
        self._setup = b"{\n%b} >/dev/null 2>&1 </dev/null\n" % setup if setup else b""
        self._queue: deque[SpawnedCommand] = deque()
        self._current: SpawnedCommand | None = None
        self._over = asyncio.Event()

    def launch(self, arguments: Mapping[str, Any]) -> LaunchSpec:
        """Return the specification of a command of this session."""
        return LaunchSpec(
            program=self._words,
            text=self._setup + arguments["command"],
            cwd=resolve_path(arguments.get("cwd") or b"", self._cwd),
            env=merge_env(self._env, arguments),
            merge=bool(arguments.get("merge")),
        )

    def submit(self, command: SpawnedCommand) -> None:
        """Run a command after those submitted before."""
        self._queue.append(command)
        self._next()

    def on_command_end(self, command: SpawnedCommand) -> None:
        """Start the next command after one has ended."""
        if command is self._current:
            self._current = None
            self._next()

    def _next(self) -> None:
        while self._current is None and self._queue:
            command = self._queue.popleft()
            if not command.over:
                self._current = command
                command.begin()

    async def until_closed(self) -> dict[str, Any]:
        """Wait until the session is closed."""
        await self._over.wait()
        return {}

    async def close(self) -> dict[str, Any]:
        """End the commands of the session."""
        waiting, current = list(self._queue), self._current
        self._queue.clear()
        for command in waiting:
            command.cancel()
        if current is not None:
            await current.close(_CLOSE_GRACE_S)
        self._over.set()
        return {}
