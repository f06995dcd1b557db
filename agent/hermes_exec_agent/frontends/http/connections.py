"""Which connections may stay: a bounded number, of which those that have shown no token make room for new ones."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import struct
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

CONNECTIONS = 128
"""At once, whatever they are about; each may hold a request of `wire.MAX_BODY`."""
RESERVED = 16
"""Of them, those that clients with the token never take: `/health` and a client's first request go there."""
ONE_PEER = 64
"""Connections without the token from one address, or from one user of this machine."""
FIRST_LINES_S = 5.0
"""So long a new connection may take to send its first request's first lines."""
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nRetry-After: 5\r\nConnection: close\r\n"
    b"Content-Length: 21\r\n\r\ntoo many connections\n"
)
_CREDENTIALS = struct.Struct("3i")


class Connections:
    """The connections of one server.

    A connection counts as known once a request on it has shown the token (or came over a socket that belongs to this
    user). The others are kept as long as there is room, and the oldest of them is closed for a new one: half-open
    connections keep no other client out.
    """

    def __init__(self) -> None:
        self._accept: Callable[[], asyncio.Protocol] | None = None
        self._unknown: dict[_Connection, None] = {}
        self._known: set[_Connection] = set()
        self._of: dict[object, _Connection] = {}

    def set_protocol_factory(self, accept: Callable[[], asyncio.Protocol]) -> None:
        """Hand connections that may stay to the protocols that ``accept`` makes."""
        self._accept = accept

    def __call__(self) -> asyncio.Protocol:
        """A protocol for a new connection."""
        if self._accept is None:
            raise RuntimeError("no server is set up")
        return _Connection(self, self._accept())

    @contextlib.contextmanager
    def serve_request(self, protocol: object, *, known: bool) -> Generator[bool]:
        """Serve one request of a connection. False where there is no room for one more connection with the token."""
        connection = self._of.get(protocol)
        if connection is None:
            yield True
            return
        connection.on_request()
        if known and connection in self._unknown:
            if len(self._known) >= max(1, CONNECTIONS - RESERVED):
                yield False
                return
            del self._unknown[connection]
            self._known.add(connection)
        yield True

    def admit(self, connection: _Connection) -> bool:
        """Count a new connection, for which an older one may have to go. False where none can."""
        same = [each for each in self._unknown if each.peer == connection.peer]
        if len(same) >= ONE_PEER:
            same[0].evict()
        if len(self._unknown) + len(self._known) >= CONNECTIONS:
            if not self._unknown:
                return False
            next(iter(self._unknown)).evict()
        self._unknown[connection] = None
        self._of[connection.inner] = connection
        return True

    def forget(self, connection: _Connection) -> None:
        """A connection is gone, or about to be."""
        self._unknown.pop(connection, None)
        self._known.discard(connection)
        self._of.pop(connection.inner, None)


class _Connection(asyncio.Protocol):
    """Stands between a transport and the library's protocol."""

    peer: object = None

    def __init__(self, connections: Connections, inner: asyncio.Protocol) -> None:
        self.inner = inner
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._first: asyncio.TimerHandle | None = None
        self._admitted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Look at the peer, and hand the connection on if it may stay."""
        self._transport = cast("asyncio.Transport", transport)
        self.peer, ours = _peer(self._transport)
        if not ours:
            self._transport.abort()
        elif not self._connections.admit(self):
            self._transport.write(_FULL)
            self._transport.close()
        else:
            self._admitted = True
            self._first = asyncio.get_running_loop().call_later(FIRST_LINES_S, self._transport.abort)
            self.inner.connection_made(transport)

    def on_request(self) -> None:
        """The first lines of a request are here."""
        if self._first is not None:
            self._first.cancel()

    def evict(self) -> None:
        """Close it, for another one."""
        self._connections.forget(self)
        if self._transport is not None:
            # A peer that does not read its answer must not keep its connection by that.
            end = self._transport.abort if self._transport.get_write_buffer_size() else self._transport.close
            end()

    def data_received(self, data: bytes) -> None:
        """Hand it on."""
        if self._admitted:
            self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Hand it on."""
        return self.inner.eof_received() if self._admitted else None

    def pause_writing(self) -> None:
        """Hand it on."""
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        """Hand it on."""
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self.on_request()
        self._connections.forget(self)
        if self._admitted:
            self.inner.connection_lost(exc)


def _peer(transport: asyncio.Transport) -> tuple[object, bool]:
    """Whose connection it is, and whether it may be: over a unix socket, this user's alone."""
    made: socket.socket = transport.get_extra_info("socket")
    if made.family == socket.AF_UNIX:
        uid = peer_uid(made)
        return uid, uid == os.geteuid()
    address = str((transport.get_extra_info("peername") or ("",))[0])
    with contextlib.suppress(ValueError):
        parsed = ipaddress.ip_address(address.partition("%")[0])
        if parsed.version == 6 and parsed.ipv4_mapped is None:
            return ipaddress.ip_network((parsed, 64), strict=False), True
    return address, True


def peer_uid(connected: socket.socket) -> int:
    """The number of the user who connected to a unix socket, as the kernel has it."""
    told = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(told)
    return int(uid)
