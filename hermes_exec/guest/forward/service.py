"""Connections forwarded into the target and out of it.

``forward.connect`` opens a connection. ``forward.listen`` accepts connections: its output is the port, followed by a
number for each connection, 8 bytes each; ``forward.accept`` takes one over. A connection's request has the peer's
bytes as its STDOUT, and its input is sent to the peer. Its STDERR has 8 bytes: the number of bytes after which the
peer ended its output; the other direction may continue. The answer follows when both directions have ended. It is
empty, or has ``broken`` with the reason when the connection broke, or ``error`` when it was never established.
Cancelling the request resets the connection.
"""

import _socket
import errno
import os
import stat

from ..core import wire
from .connect import connect, numeric
from .forwarded_connection import ForwardedConnection, reset_on_close

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..core.server import Client, GuestServer, Request

_BACKLOG = 128
_WAITING = 256
"""Accepted connections that may wait for ``forward.accept``; the kernel's queue holds further ones."""
_PAUSE_S = 0.1


class Listener:
    """A listening socket that accepts connections until its request is cancelled or its client goes."""

    def __init__(
        self, request: "Request", sock: "_socket.socket", path: bytes, on_closed: "Callable[[], None]"
    ) -> None:
        self._request = request
        self._on_closed = on_closed
        self._loop = request.client.server.loop
        self._socket = sock
        self._path = path
        self._inode = inode_of(path) if path else 0
        self._count = 0
        self._waiting: "dict[int, _socket.socket]" = {}
        self._outlet = request.open_output(wire.STDOUT)
        self._outlet.put(wire.OFFSET.pack(0 if path else sock.getsockname()[1]))
        request.cancel = self.close
        self._listen_on()

    def _listen_on(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.on_read(self._socket.fileno(), self._acceptable)

    def _acceptable(self) -> None:
        try:
            number = _accept(self._socket)
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:  # too many open files: retried, as others may be closed
            self._loop.ignore_read(self._socket.fileno())
            self._loop.call_later(_PAUSE_S, self._listen_on)
            return
        peer = _socket.socket(self._socket.family, _socket.SOCK_STREAM, 0, number)
        peer.setblocking(False)
        if not self._path:
            peer.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        self._count += 1
        self._waiting[self._count] = peer
        self._outlet.put(wire.OFFSET.pack(self._count))
        if len(self._waiting) >= _WAITING:
            self._loop.ignore_read(self._socket.fileno())

    def take(self, request: "Request", number: int) -> None:
        """Connect a request to an accepted connection that was announced under ``number``."""
        peer = self._waiting.pop(number)
        self._listen_on()
        ForwardedConnection(request).open(peer)

    def close(self) -> None:
        """Stop listening; connections that were taken over continue."""
        if self._socket.fileno() < 0:
            return
        self._loop.ignore_read(self._socket.fileno())
        self._socket.close()
        for peer in self._waiting.values():
            reset_on_close(peer)
            peer.close()
        if self._path:
            remove_path(self._path, self._inode)
        self._on_closed()
        self._request.finish({})


def _accept(sock: "_socket.socket") -> int:
    return int(sock._accept()[0])  # type: ignore[attr-defined]  # noqa: SLF001  as socket.accept does


def bind_path(path: bytes) -> "_socket.socket":
    """Bind a unix socket that only this user can connect to; a stale one is replaced."""
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        try:
            sock.bind(path)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not _is_dead(path):
                raise
            os.unlink(path)
            sock.bind(path)
        os.chmod(path, 0o600)  # no client can connect before it listens
    except BaseException:
        sock.close()
        raise
    return sock


def inode_of(path: "bytes | str") -> int:
    """Return the inode of a socket, which distinguishes it from a later one of the same name."""
    return os.stat(path).st_ino


def remove_path(path: bytes, inode: int) -> None:
    """Remove a socket file unless it was replaced by another one."""
    try:
        if inode_of(path) == inode:
            os.unlink(path)
    except OSError:
        pass  # it was already removed


def _is_dead(path: bytes) -> bool:
    if not stat.S_ISSOCK(os.lstat(path).st_mode):  # connecting to a plain file is refused too
        return False
    probe = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    probe.setblocking(False)
    code = probe.connect_ex(path)
    probe.close()
    return code == errno.ECONNREFUSED


def _bind_port(host: str, port: int) -> "_socket.socket":
    addresses = numeric(host, port)
    if not addresses:
        raise OSError(errno.EADDRNOTAVAIL, "only an address can be listened on, not a name")
    family, address = addresses[0]
    sock = _socket.socket(family, _socket.SOCK_STREAM)
    try:
        sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock


def install(server: "GuestServer") -> None:
    """Register ``forward.connect``, ``forward.listen`` and ``forward.accept``."""
    listeners: "dict[Client, dict[int, Listener]]" = {}

    def make(request: "Request", arguments: "dict[str, Any]") -> None:
        connect(ForwardedConnection(request), arguments["host"], arguments["port"], arguments["path"])

    def listen(request: "Request", arguments: "dict[str, Any]") -> None:
        path = arguments["path"]
        sock = bind_path(path) if path else _bind_port(arguments["host"], arguments["port"])
        sock.setblocking(False)
        sock.listen(_BACKLOG)
        client = request.client
        if client not in listeners:
            listeners[client] = {}
            client.on_close.append(lambda: forget(client))
        own = listeners[client]
        number = request.number

        def on_close() -> None:
            del own[number]

        own[number] = Listener(request, sock, path, on_close)

    def forget(client: "Client") -> None:
        for listener in list(listeners[client].values()):
            listener.close()
        del listeners[client]

    def accept(request: "Request", arguments: "dict[str, Any]") -> None:
        listeners[request.client][arguments["listener"]].take(request, arguments["connection"])

    server.operations["forward.connect"] = make
    server.operations["forward.listen"] = listen
    server.operations["forward.accept"] = accept
