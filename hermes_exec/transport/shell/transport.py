"""Commands on a target that has a shell and no Python.

Each command is one ``spawn``: a constant script for ``sh`` enters the folder, reports its process id and becomes the
command. Nothing stays on the target between two commands, so a lost channel is a lost outcome, and every operation
other than commands and whole files needs a guest. docs/promises.md has the table.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import Closed, Unsupported
from hermes_exec.transport.protocol import Capabilities, wrong_loop
from hermes_exec.transport.shell import files
from hermes_exec.transport.shell.command import SpawnedCommand
from hermes_exec.transport.shell.launch import LaunchSpec, merge_env
from hermes_exec.transport.shell.session import StatelessSession, TaskHandle
from hermes_exec.transport.shell.target import ShellTarget, resolve_path

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from hermes_exec.backend import Backend
    from hermes_exec.transport.link import Link
    from hermes_exec.transport.protocol import RunningCommand, Sink

_CLOSE_GRACE_S = 0.5
_REMEDY = "install Python 3.6 or later there"


class ShellTransport:
    """The transport without a guest, created by ``ShellTransport.open``."""

    def __init__(self, place: ShellTarget) -> None:
        self.link: Link | None = None
        self._loop = asyncio.get_running_loop()
        self._place = place
        self._number = 0
        self._sessions: dict[int, StatelessSession] = {}
        self._active: set[SpawnedCommand] = set()
        self._lingering: set[SpawnedCommand] = set()
        self._closed = False

    @classmethod
    async def open(cls, backend: Backend, *, env: Mapping[str, str], cwd: str | None) -> ShellTransport:
        """Look for a shell on an opened target.

        Raises:
            PlaceUnavailable: no shell answers there; nothing is left behind.
        """
        return cls(await ShellTarget.probe(backend, env, cwd))

    @property
    def capabilities(self) -> Capabilities:
        """Return the capabilities: commands and whole files."""
        return Capabilities(
            carrier="plain",
            sessions=False,
            jobs=False,
            pty=False,
            file_transfer=False,
            forward=False,
            reconnect=False,
            kill_tree=False,
            limits=False,
            background=self._place.backend.traits.reports_exit,
            features=self._place.backend.traits.features,
        )

    def start(self, operation: str, arguments: Mapping[str, Any], sink: Sink, /) -> RunningCommand:
        """Start ``exec``, ``run``, ``session`` or ``close``.

        Raises:
            Closed: the transport or the session was closed.
            Unsupported: the operation needs a guest.
        """
        if asyncio._get_running_loop() not in {self._loop, None}:  # noqa: SLF001  cheap, and None without a loop
            raise wrong_loop()
        if self._closed:
            raise Closed("the terminal is closed")
        if arguments.get("limits"):
            raise Unsupported("this target cannot limit a command", remedy=_REMEDY)
        self._number += 1
        if operation == "exec":
            return self._execute(arguments, sink)
        if operation == "run":
            return self._run(arguments, sink)
        if operation == "session":
            session = self._sessions[self._number] = StatelessSession(self._place, arguments)
            return TaskHandle(self._number, session.until_closed())
        if operation == "close":
            return TaskHandle(self._number, self._session(arguments, forget=True).close())
        raise Unsupported(f"{operation} needs a Python in the target", remedy=_REMEDY)

    def _execute(self, arguments: Mapping[str, Any], sink: Sink) -> SpawnedCommand:
        place = self._place
        launch = LaunchSpec(
            program=tuple(arguments["argv"]),
            cwd=resolve_path(arguments.get("cwd") or b"", place.cwd),
            env=merge_env(place.env, arguments),
            merge=bool(arguments.get("merge")),
        )
        command = SpawnedCommand(place, self._number, launch, arguments, sink, self._handle_end)
        self._active.add(command)
        command.begin()
        return command

    def _run(self, arguments: Mapping[str, Any], sink: Sink) -> SpawnedCommand:
        session = self._session(arguments)

        def handle_end(command: SpawnedCommand) -> None:
            self._handle_end(command)
            session.on_command_end(command)

        command = SpawnedCommand(self._place, self._number, session.launch(arguments), arguments, sink, handle_end)
        self._active.add(command)
        session.submit(command)
        return command

    def _handle_end(self, command: SpawnedCommand) -> None:
        """Handle a command's end; its channel stays open while its children hold it, or they get SIGPIPE."""
        self._active.discard(command)
        self._lingering = {other for other in self._lingering if other.lingering}
        if command.lingering:
            self._lingering.add(command)

    def _session(self, arguments: Mapping[str, Any], *, forget: bool = False) -> StatelessSession:
        session = self._sessions.get(arguments["session"])
        if session is None:
            raise Closed("the session is closed")
        if forget:
            del self._sessions[arguments["session"]]
        return session

    async def read(self, path: str | bytes | os.PathLike[str]) -> bytes:
        """Read a file; see ``hermes_exec.transport.shell.files.read``."""
        return await files.read(self._place, path)

    async def write(self, path: str | bytes | os.PathLike[str], data: bytes) -> None:
        """Write a file; see ``hermes_exec.transport.shell.files.write``."""
        await files.write(self._place, path, data)

    async def close(self) -> None:
        """End every command. Safe to call twice."""
        self._closed = True
        sessions = list(self._sessions.values())
        self._sessions.clear()
        await asyncio.gather(
            *(session.close() for session in sessions),
            *(command.close(_CLOSE_GRACE_S) for command in list(self._active)),
        )
        for channel in [command.lingering for command in self._lingering]:
            if channel is not None:
                channel.abandon()
