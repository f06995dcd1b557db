"""A CONNECT proxy at a unix socket, the only network access of a sandbox.

It runs outside and resolves names itself, once: it connects to the addresses that it has checked, so a name cannot
resolve to another address after the check (DNS rebinding). It does not inspect the data that it relays.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from hermes_exec._async import cancel_and_wait
from hermes_exec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from pathlib import Path
    from types import TracebackType

SOCKET = "egress.sock"
PORT = 443
"""The port of a host that is listed without one."""
_TRANSLATED = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")))
"""IPv6 networks that embed an IPv4 address, to which a router on the way may translate."""
_SPECIAL = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "fec0::/10")))
"""Networks of protocols and of clouds that `ipaddress` may call global."""
_HEAD = 8192
_HEAD_S = 15.0
_CONNECT_S = 30.0
_MANY = 64
"""The maximum number of connections."""
_REMEMBERED = 1000
_PIECE = 1 << 16
_REQUEST = re.compile(
    rb"CONNECT ([a-zA-Z0-9.-]{1,253}|\[[0-9a-fA-F:.]{2,45}\]):([0-9]{1,5}) HTTP/1\.[01]\r\n", re.ASCII
)
_REASONS = {200: "Connected", 400: "Bad Request", 403: "Forbidden", 405: "Method Not Allowed", 502: "Bad Gateway",
            503: "Service Unavailable"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class HostPort:
    """A host and a port."""

    host: str
    port: int

    @property
    def is_address(self) -> bool:
        """Whether the host is an IP address instead of a name."""
        return _parse_address(self.host) is not None


def parse_hosts(words: Iterable[str]) -> frozenset[HostPort]:
    """Parse the hosts of a policy: ``api.example.org`` or ``api.example.org:8443``.

    Raises:
        UsageError: a port is invalid.
    """
    found: set[HostPort] = set()
    for word in words:
        host, colon, port = word.partition(":")
        if colon and not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
            raise UsageError(f"{word!r} has an invalid port", remedy="a number from 1 to 65535")
        found.add(HostPort(host, int(port) if colon else PORT))
    return frozenset(found)


def is_public(address: str) -> bool:
    """Whether an address is public: not private, local, reserved or multicast."""
    found = _parse_address(address)
    if found is None:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if any(found in network for network in _TRANSLATED):
            return False
        if found.ipv4_mapped is not None:
            found = found.ipv4_mapped
    if any(found in network for network in _SPECIAL if network.version == found.version):
        return False
    return found.is_global and not found.is_multicast and not found.is_reserved


def _parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class ProxiedRequest:
    """One request to the proxy, for the log of a run."""

    host: str
    port: int
    status: int
    """The HTTP status: 200 if connected, 403 if refused."""


async def _resolve(host: str, port: int) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [str(address[4][0]) for address in found]


class EgressProxy:
    """The proxy of one sandbox, from ``async with`` to its end."""

    def __init__(
        self,
        hosts: Iterable[str],
        folder: Path,
        *,
        look_up: Callable[[str, int], Awaitable[Sequence[str]]] = _resolve,
    ) -> None:
        """``folder`` is an empty folder that the sandbox mounts; ``look_up`` resolves a name to addresses."""
        self.path = folder / SOCKET
        self.requests: list[ProxiedRequest] = []
        """The requests in order, up to a limit."""
        self._named = parse_hosts(hosts)
        self._look_up = look_up
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Start to listen."""
        self._server = await asyncio.start_unix_server(self._on_connection, self.path, limit=_HEAD)
        self.path.chmod(0o666)  # for the sandbox's user; only that sandbox knows the folder's name
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop to listen and close every connection."""
        if self._server is not None:
            self._server.close()
        await cancel_and_wait(self._tasks)
        self.path.unlink(missing_ok=True)

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                if len(self._tasks) > _MANY:
                    await _respond(writer, 503)
                else:
                    await self._handle_request(reader, writer)
        finally:
            writer.close()

    async def _handle_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HEAD_S):
            head = await reader.readuntil(b"\r\n\r\n")
        found = _REQUEST.match(head)
        if found is None:
            await _respond(writer, 400 if head.startswith(b"CONNECT ") else 405)
            return
        wanted = HostPort(found[1].decode().lower().strip("[]").removesuffix("."), int(found[2]))
        status, there = await self._connect(wanted)
        if len(self.requests) < _REMEMBERED:
            self.requests.append(ProxiedRequest(wanted.host, wanted.port, status))
        await _respond(writer, status)
        if there is not None:
            await _relay((reader, writer), there)

    async def _connect(self, wanted: HostPort) -> tuple[int, tuple[asyncio.StreamReader, asyncio.StreamWriter] | None]:
        if wanted not in self._named:
            return 403, None
        try:
            async with asyncio.timeout(_CONNECT_S):
                addresses = [wanted.host] if wanted.is_address else await self._look_up(wanted.host, wanted.port)
                allowed = [each for each in addresses if wanted.is_address or is_public(each)]
                if addresses and not allowed:
                    return 403, None  # the name resolves to a private network
                for address in allowed:
                    with contextlib.suppress(OSError):
                        return 200, await asyncio.open_connection(address, wanted.port)
        except (OSError, TimeoutError, UnicodeError):
            pass
        return 502, None


async def _respond(writer: asyncio.StreamWriter, status: int) -> None:
    writer.write(f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Length: 0\r\n\r\n".encode())
    await writer.drain()


async def _relay(
    one: tuple[asyncio.StreamReader, asyncio.StreamWriter], other: tuple[asyncio.StreamReader, asyncio.StreamWriter]
) -> None:
    """Relay data in both directions until both have ended."""
    try:
        await asyncio.gather(_copy(one[0], other[1]), _copy(other[0], one[1]))
    finally:
        other[1].close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_PIECE):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
