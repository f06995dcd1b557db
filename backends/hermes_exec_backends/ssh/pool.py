"""Connections that terminals share, and who uses them: the last one to go closes."""

from __future__ import annotations

import asyncio
import logging
import weakref
from typing import TYPE_CHECKING

from hermes_exec.errors import PlaceUnavailable
from hermes_exec_backends.ssh.connection import Connection, Full
from hermes_exec_backends.ssh.login import NeedsPerson

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.backend import Channel, Receiver
    from hermes_exec_backends.ssh.host import Host

_log = logging.getLogger("hermes_exec.ssh")
_shared: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Host, Shared]] = weakref.WeakKeyDictionary()


class Shared:
    """The connections to one host: one, unless the host limits the channels of each."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.users = 0
        self._connections: list[Connection] = []
        self._making = asyncio.Lock()
        self._connected = asyncio.Event()

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._connections)

    async def connection(self, *, interactive: bool) -> Connection:
        """A live connection with room for a channel, made if there is none.

        Raises:
            PlaceUnavailable: the host cannot be reached or does not let us in.
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
        """Start words on the host, on a new connection if there is none that works.

        When only a person could log in again, wait at most ``patience_s`` until somebody has: nothing is
        tried meanwhile.
        """
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
        _log.warning("%s; waiting until somebody opens %s again", error.what, self.host)
        try:
            async with asyncio.timeout(patience_s):
                await self._connected.wait()
        except TimeoutError:
            raise error from None

    async def _drop(self, connection: Connection) -> None:
        self._connections.remove(connection)
        await connection.close()

    async def close(self) -> None:
        """Close all."""
        for connection in list(self._connections):
            await self._drop(connection)


def join(host: Host) -> Shared:
    """Become a user of the connections to ``host``, on this loop."""
    hosts = _shared.setdefault(asyncio.get_running_loop(), {})
    shared = hosts.setdefault(host, Shared(host))
    shared.users += 1
    return shared


async def leave(shared: Shared) -> None:
    """Stop being one; the last one closes."""
    shared.users -= 1
    if shared.users == 0:
        hosts = _shared.get(asyncio.get_running_loop(), {})
        if hosts.get(shared.host) is shared:
            del hosts[shared.host]
        await shared.close()
