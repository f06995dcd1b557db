"""Routes to the sshd of a host: a TCP connection, a proxy command, or a tunnel through a jump host."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import socket
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from hermes_exec.errors import PlaceUnavailable
from hermes_exec_backends.ssh.nonblocking_socket import tune

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hermes_exec.backend import Channel, Exit, Receiver
    from hermes_exec_backends.ssh.host import Host

_RELAY = 256 << 10


@dataclass(slots=True)
class Route:
    """A connected socket, and the resources to close with it."""

    sock: socket.socket
    round_trip_s: float = math.inf
    """Seconds for one round trip, where they could be measured."""
    said: Callable[[], str] = lambda: ""
    """Returns the error output of the proxy command."""
    ends: list[Callable[[], Awaitable[None]]] = field(default_factory=list["Callable[[], Awaitable[None]]"])

    async def close(self) -> None:
        """Close everything but the socket, which its user closes."""
        for end in self.ends:
            await end()


class JumpHost(Protocol):
    """A connection to a host that opens TCP connections on request."""

    async def tunnel(self, address: str, port: int, receiver: Receiver) -> Channel:
        """Open a TCP connection from that host."""
        ...

    async def close(self) -> None:
        """Close the connection, with its tunnels."""


async def open_route(host: Host, connect: Callable[[Host], Awaitable[JumpHost]]) -> Route:
    """Open a route to the sshd of ``host``; ``connect`` logs in on a jump host.

    Raises:
        PlaceUnavailable: no answer from the host, or a jump host could not be reached.
    """
    if host.proxy_command:
        return await _proxy(host)
    if host.jump:
        return await _through(host, await connect(host.jump))
    return await _tcp(host)


async def _tcp(host: Host) -> Route:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(host.connect_timeout_s):
            found = await loop.getaddrinfo(host.address, host.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise PlaceUnavailable(
            f"ssh: the name {host.address} cannot be resolved ({error})",
            remedy="check its spelling and the network, or give an address",
        ) from error
    except TimeoutError:
        raise PlaceUnavailable(f"ssh: no name server answered about {host.address}") from None
    failures: list[str] = []
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            tune(sock, host.keepalive_s)
            since = loop.time()
            async with asyncio.timeout(host.connect_timeout_s / len(found)):
                await loop.sock_connect(sock, address)
        except BaseException as error:
            sock.close()
            if not isinstance(error, OSError):
                raise
            failures.append(_failure(error, str(address[0]), host))
        else:
            return Route(sock, loop.time() - since)
    raise PlaceUnavailable(f"ssh: {'; '.join(dict.fromkeys(failures))}", remedy="check host, port and firewall")


def _failure(error: OSError, address: str, host: Host) -> str:
    where = f"{host.address} port {host.port}"
    if address != host.address:
        where += f" ({address})"
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        return f"{where} did not answer within {host.connect_timeout_s:g} s"
    if isinstance(error, ConnectionRefusedError):
        return f"{where} refused the connection: no sshd listens there"
    return f"{where} cannot be reached: {error.strerror or error}"


async def _proxy(host: Host) -> Route:
    ours, theirs = socket.socketpair()
    errors_in, errors_out = os.pipe()
    try:
        process = subprocess.Popen(  # noqa: ASYNC220  starting it waits for nothing
            host.proxy_command,
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=errors_out,
            start_new_session=True,
        )
    except OSError as error:
        ours.close()
        os.close(errors_in)
        raise PlaceUnavailable(
            f"ssh: the proxy command {host.proxy_command[0]} cannot be started: {error.strerror}"
        ) from error
    finally:
        theirs.close()
        os.close(errors_out)
    os.set_blocking(errors_in, False)
    said = bytearray()

    def complaint() -> str:
        with contextlib.suppress(OSError):
            said.extend(os.read(errors_in, 4096))
        return said[-300:].decode("utf-8", "replace").strip()

    async def end() -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, 15)
        os.close(errors_in)
        await asyncio.get_running_loop().run_in_executor(None, _reap, process)

    return Route(ours, said=complaint, ends=[end])


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def _through(host: Host, jump: JumpHost) -> Route:
    ours, theirs = socket.socketpair()
    relay = _Relay(theirs)
    try:
        relay.start(await jump.tunnel(host.address, host.port, relay))
    except BaseException:
        ours.close()
        theirs.close()
        await jump.close()
        raise

    async def end() -> None:
        relay.end()
        await jump.close()

    return Route(ours, ends=[end])


class _Relay:
    """A copier of bytes between a tunnel and a socket, on the event loop, with flow control in both directions."""

    def __init__(self, sock: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._channel: Channel
        self._queue = bytearray()
        self._full = False
        sock.setblocking(False)

    def start(self, channel: Channel) -> None:
        self._channel = channel
        self._loop.add_reader(self._sock, self._readable)

    def _readable(self) -> None:
        try:
            data = self._sock.recv(_RELAY)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.end()
            return
        self._channel.write(data)
        if self._channel.unsent > _RELAY:
            self._loop.remove_reader(self._sock)
            self._loop.create_task(self._wait()).add_done_callback(lambda _: None)

    async def _wait(self) -> None:
        await self._channel.drain()
        if self._sock.fileno() >= 0:
            self._loop.add_reader(self._sock, self._readable)

    def on_data(self, data: bytes, /) -> None:
        """Send bytes of the tunnel to the socket."""
        self._queue += data
        self._flush()

    def on_stderr(self, data: bytes, /) -> None:
        """Ignore the data: a tunnel has no standard error."""

    def on_close(self, exit: Exit, /) -> None:  # noqa: ARG002  the socket just closes
        """Close the socket after the tunnel."""
        self.end()

    def _flush(self) -> None:
        if self._sock.fileno() < 0:
            return
        try:
            del self._queue[: self._sock.send(self._queue)]
        except BlockingIOError:
            pass
        except OSError:
            self.end()
            return
        if bool(self._queue) != self._full:
            self._full = bool(self._queue)
            if self._full:
                self._channel.pause()
                self._loop.add_writer(self._sock, self._flush)
            else:
                self._loop.remove_writer(self._sock)
                self._channel.resume()

    def end(self) -> None:
        """Close both sides."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()
            self._channel.abandon()
