"""Connections to one host through paramiko, shared by terminals."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from hermes_exec.errors import PlaceUnavailable
from hermes_exec_backends.ssh.connection import Connection, Full
from hermes_exec_backends.ssh.login import NeedsPerson
from hermes_exec_backends.ssh.pool import SharedConnection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.backend import Channel, Receiver
    from hermes_exec_backends.ssh.host import Host

_log = logging.getLogger("hermes_exec.ssh")


class Connections(SharedConnection):
    """The connections to one host through paramiko: one, unless the host limits the channels of each."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.host = host
        self._connections: list[Connection] = []
        self._making = asyncio.Lock()
        self._connected = asyncio.Event()

    @property
    def far(self) -> bool:
        """Return whether one of the connections has a high latency."""
        return any(connection.far for connection in self._connections)

    async def connect(self) -> None:
        """Connect; see ``SharedConnection.connect``."""
        await self.connection(interactive=True)

    async def connection(self, *, interactive: bool) -> Connection:
        """Return a live connection that accepts a channel; connect unless there is one.

        Raises:
            PlaceUnavailable: the host cannot be reached or refuses the login.
            NeedsPerson: see ``Connection.make``.
        """
        async with self._making:
            for connection in list(self._connections):
                if not connection.alive:
                    await self._drop(connection)
                elif not connection.full:
                    return connection
            connection = await Connection.make(self.host, interactive=interactive)
            self._connections.append(connection)
            self._connected.set()
            return connection

    async def spawn(
        self,
        argv: Sequence[str | bytes],
        receiver: Receiver,
        env: Mapping[str, str] | None,
        setup: Sequence[str],
        patience_s: float,
    ) -> Channel:
        """Start ``argv`` on the host; see ``SharedConnection.spawn``."""
        while True:
            try:
                connection = await self.connection(interactive=False)
            except NeedsPerson as error:
                await self._person(error, patience_s)
                continue
            try:
                channel = await connection.spawn(argv, receiver, env, setup)
            except Full as error:
                if not connection.channels:
                    raise PlaceUnavailable(f"ssh: {self.host} starts nothing: {error}") from error
                connection.full = True
            else:
                return channel

    async def _person(self, error: NeedsPerson, patience_s: float) -> None:
        self._connected.clear()
        _log.warning("%s; waiting until a caller opens %s again", error.what, self.host)
        try:
            async with asyncio.timeout(patience_s):
                await self._connected.wait()
        except TimeoutError:
            raise error from None

    async def _drop(self, connection: Connection) -> None:
        self._connections.remove(connection)
        await connection.close()

    async def close(self) -> None:
        """Close all connections."""
        for connection in list(self._connections):
            await self._drop(connection)
