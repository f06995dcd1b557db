"""A limit on connections, under which new ones replace connections that have sent no token."""

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
"""The limit of connections; each may hold a request of `protocol.MAX_BODY`."""
RESERVED = 16
"""Of them, those reserved for connections without the token: `/health` and the first request of a client."""
ONE_PEER = 64
"""Connections without the token from one address, or from one user of this machine."""
FIRST_LINES_S = 5.0
"""The time limit for a new connection to send the headers of its first request."""
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nRetry-After: 5\r\nConnection: close\r\n"
    b"Content-Length: 21\r\n\r\ntoo many connections\n"
)
_CREDENTIALS = struct.Struct("3i")


class Connections:
    """The connections of one server.

    A connection is known once a request on it has the token (or comes over a socket of this user). Others are kept
    while there is room, and a new connection replaces the oldest of them, so that half-open connections block no other
    client.
    """

    def __init__(self) -> None:
        self._accept: Callable[[], asyncio.Protocol] | None = None
        self._unknown: dict[_Connection, None] = {}
        self._known: set[_Connection] = set()
        self._of: dict[object, _Connection] = {}

    def set_protocol_factory(self, accept: Callable[[], asyncio.Protocol]) -> None:
        """Pass admitted connections to protocols that ``accept`` creates."""
        self._accept = accept

    def __call__(self) -> asyncio.Protocol:
        """Return a protocol for a new connection."""
        if self._accept is None:
            raise RuntimeError("no server is set up")
        return _Connection(self, self._accept())

    @contextlib.contextmanager
    def serve_request(self, protocol: object, *, known: bool) -> Generator[bool]:
        """Serve one request of a connection. Yields False if there is no room for another connection with the token."""
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
        """Admit a new connection, if needed in place of an older one; return whether there is room."""
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
        """Remove a connection that has ended or is about to end."""
        self._unknown.pop(connection, None)
        self._known.discard(connection)
        self._of.pop(connection.inner, None)


class _Connection(asyncio.Protocol):
    """The protocol between a transport and the protocol of the HTTP library."""

    peer: object = None

    def __init__(self, connections: Connections, inner: asyncio.Protocol) -> None:
        self.inner = inner
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._first: asyncio.TimerHandle | None = None
        self._admitted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Check the peer, and pass the connection on if it is admitted."""
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
        """Stop the timer, because the headers of a request have arrived."""
        if self._first is not None:
            self._first.cancel()

    def evict(self) -> None:
        """Close the connection in favour of another one."""
        self._connections.forget(self)
        if self._transport is not None:
            # A peer that does not read its response must not keep the connection open.
            end = self._transport.abort if self._transport.get_write_buffer_size() else self._transport.close
            end()

    def data_received(self, data: bytes) -> None:
        """Pass the event on."""
        if self._admitted:
            self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass the event on."""
        return self.inner.eof_received() if self._admitted else None

    def pause_writing(self) -> None:
        """Pass the event on."""
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass the event on."""
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection, and pass the event on."""
        self.on_request()
        self._connections.forget(self)
        if self._admitted:
            self.inner.connection_lost(exc)


def _peer(transport: asyncio.Transport) -> tuple[object, bool]:
    """Return the peer, and whether it may connect: on a unix socket, this user only."""
    connected: socket.socket = transport.get_extra_info("socket")
    if connected.family == socket.AF_UNIX:
        uid = peer_uid(connected)
        return uid, uid == os.geteuid()
    address = str((transport.get_extra_info("peername") or ("",))[0])
    with contextlib.suppress(ValueError):
        parsed = ipaddress.ip_address(address.partition("%")[0])
        if parsed.version == 6 and parsed.ipv4_mapped is None:
            return ipaddress.ip_network((parsed, 64), strict=False), True
    return address, True


def peer_uid(connected: socket.socket) -> int:
    """Return the user id of the peer of a unix socket, as reported by the kernel."""
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    return int(uid)
