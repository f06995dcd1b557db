"""Connections to one host through paramiko, shared by all terminals of that host."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, cast

from hermes_exec.errors import PlaceUnavailable
from hermes_exec.transport.heartbeat import Heartbeat
from hermes_exec_backends.ssh import launch, login
from hermes_exec_backends.ssh.channel import SshChannel
from hermes_exec_backends.ssh.login import NeedsPerson
from hermes_exec_backends.ssh.nonblocking_socket import NonblockingSocket
from hermes_exec_backends.ssh.pool import SharedConnection
from hermes_exec_backends.ssh.route import open_route

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Generator, Mapping, Sequence

    from hermes_exec.backend import Channel, Receiver
    from hermes_exec_backends.ssh.host import Host
    from hermes_exec_backends.ssh.pipelined_open import PipelinedOpen
    from hermes_exec_backends.ssh.protocol_requests import Transport
    from hermes_exec_backends.ssh.route import Route


_OPEN_S = 60.0
_FAR_S = 0.02
_log = logging.getLogger("hermes_exec.ssh")


class Full(Exception):
    """The error for a host that accepts no further channel on this connection."""


class Connection:
    """An authenticated transport. Use it on one event loop."""

    def __init__(
        self, host: Host, way: Route, wire: NonblockingSocket, transport: Transport, early: PipelinedOpen | None
    ) -> None:
        self.host = host
        self._way = way
        self._wire = wire
        self._transport = transport
        self._early = early
        self.channels: set[SshChannel] = set()
        self.full = False
        """Whether the host has just refused a further channel."""
        self._silent = False
        self._heartbeat = Heartbeat(host.keepalive_s, self._ask_for_life, self._fall_silent, lambda: self.alive)
        wire.on_bytes = self._heartbeat.record_activity
        self._heartbeat.watch()

    @classmethod
    async def make(cls, host: Host, *, interactive: bool, early: bool = True) -> Connection:
        """Connect and log in, and with ``early`` request the first session at once.

        Raises:
            PlaceUnavailable: a step failed; the error names the step and the reason. Nothing remains.
            NeedsPerson: the login needs interactive answers, and ``interactive`` is false.
        """
        from hermes_exec_backends.ssh.packets import Packets
        from hermes_exec_backends.ssh.protocol_requests import Transport

        loop = asyncio.get_running_loop()
        way = await open_route(host, partial(cls.make, interactive=interactive, early=False))
        wire = NonblockingSocket(way.sock, loop)
        transport = None
        try:
            packets = None if host.compression else Packets  # the shim supports no compression
            sock = cast("socket.socket", wire)  # paramiko uses only the methods that it has
            transport = Transport(sock, packetizer_class=packets)
            log_in = partial(login.log_in, transport, host, way, interactive=interactive, early=early)
            session = await loop.run_in_executor(None, log_in)
        except BaseException:
            await _end(transport, wire, way)
            raise
        return cls(host, way, wire, transport, session)

    @property
    def alive(self) -> bool:
        """Return whether new channels can be opened."""
        return self._transport.is_active() and not self._silent

    @property
    def far(self) -> bool:
        """Return whether round trips are slower than a slower start of the guest."""
        return self._way.round_trip_s > _FAR_S

    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, env: Mapping[str, str] | None, setup: Sequence[str]
    ) -> Channel:
        """Start a program on the host; see ``Backend.spawn``.

        Raises:
            Full: this connection has as many channels as the host allows.
            PlaceUnavailable: the connection is broken; nothing ran.
        """
        nonce = launch.new_nonce()
        line = launch.line(argv, nonce, env, setup)
        start = launch.Start(receiver, nonce, lambda: channel.abandon())  # noqa: PLW0108  it comes later
        channel = SshChannel(start, self._wire, self._forget_channel)
        early, self._early = self._early, None
        await self._open_channel(channel, partial(self._open_session, channel, early))
        channel.write(line)
        return channel

    async def tunnel(self, address: str, port: int, receiver: Receiver) -> Channel:
        """Open a stream to another host as seen from this one.

        Raises:
            PlaceUnavailable: this host cannot reach it, or refuses to.
        """
        channel = SshChannel(receiver, self._wire, self._forget_channel)
        try:
            await self._open_channel(channel, partial(self._open_tunnel, channel, (address, port)))
        except Full as error:
            raise PlaceUnavailable(f"{self.host} does not connect to {address} port {port}: {error}") from None
        return channel

    async def _open_channel(self, channel: SshChannel, work: Callable[[], None]) -> None:
        """Open the channel in a thread, which cannot be stopped: after cancellation it is closed once it is open."""

        def close(done: asyncio.Future[None]) -> None:
            if done.exception() is None:
                channel.abandon()

        opening = asyncio.get_running_loop().run_in_executor(None, work)
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(close)
            raise
        self.channels.add(channel)

    def _open_session(self, channel: SshChannel, early: PipelinedOpen | None) -> None:
        from hermes_exec_backends.ssh.protocol_requests import execute

        with self._failures():
            chan = (early and early.channel()) or self._transport.open_session(timeout=_OPEN_S)
            channel.attach(self._transport, chan)
            execute(self._transport, chan, launch.COMMAND)

    def _open_tunnel(self, channel: SshChannel, towards: tuple[str, int]) -> None:
        with self._failures():
            chan = self._transport.open_channel("direct-tcpip", towards, ("127.0.0.1", 0), timeout=_OPEN_S)
            channel.attach(self._transport, chan)

    def _ask_for_life(self) -> None:
        from hermes_exec_backends.ssh.protocol_requests import ask_for_life

        ask_for_life(self._transport)

    def _fall_silent(self) -> None:
        _log.info("%s was silent for %g s, so the connection counts as broken", self.host, self._heartbeat.patience_s)
        self._silent = True  # paramiko's thread notices a moment later
        self._wire.close()

    @contextlib.contextmanager
    def _failures(self) -> Generator[None]:
        from paramiko import ChannelException, SSHException

        try:
            yield
        except ChannelException as error:
            raise Full(error.text) from error
        except (SSHException, EOFError, OSError) as error:
            raise PlaceUnavailable(f"the connection to {self.host} is broken: {str(error) or 'it ended'}") from error

    def _forget_channel(self, channel: SshChannel) -> None:
        self.channels.discard(channel)
        self.full = False

    async def close(self) -> None:
        """Close the connection with every channel."""
        self._heartbeat.stop()
        await _end(self._transport, self._wire, self._way)


async def _end(transport: Transport | None, wire: NonblockingSocket, way: Route) -> None:
    wire.close()
    if transport is not None:
        with contextlib.suppress(RuntimeError):  # the thread was never started
            await asyncio.get_running_loop().run_in_executor(None, transport.close)
    wire.dispose()
    await way.close()


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
