"""Connecting to an address from the target without blocking the guest.

IP addresses, ``localhost`` and unix sockets need no name resolution. Resolving any other name may take seconds in
the C library, so a child process does it, at the cost of a fork.
"""

import _signal
import _socket
import errno
import os

from ..core import wire
from ..core.fdutil import close_above

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..core.loop import Loop
    from .forwarded_connection import ForwardedConnection

    Address = tuple[int, Any]
    """Address family, and the address for connect(2)."""

_CONNECT_S = 30.0
_LOOKUP_S = 15.0
_BUSY_S = 0.02


def numeric(host: str, port: int) -> "list[Address]":
    """Return the addresses of a host that needs no name resolution; empty for any other name."""
    if host == "localhost":
        return [(_socket.AF_INET, ("127.0.0.1", port)), (_socket.AF_INET6, ("::1", port))]
    for family in (_socket.AF_INET, _socket.AF_INET6):
        try:
            _socket.inet_pton(family, host)
        except OSError:
            continue
        return [(family, (host, port))]
    return []


class Resolver:
    """A child process that resolves a name; ``done`` gets the addresses, or the error."""

    def __init__(self, loop: "Loop", host: str, port: int, done: "Callable[[list[Address], str], None]") -> None:
        self._loop = loop
        self._done = done
        self._said = b""
        self._told, tell = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                _ask(tell, host, port)
            finally:
                os._exit(1)
        os.close(tell)
        loop.on_exit(self._pid, lambda _: None)
        self._timer = loop.call_later(_LOOKUP_S, lambda: os.kill(self._pid, _signal.SIGKILL))
        loop.on_read(self._told, self._readable)

    def _readable(self) -> None:
        data = os.read(self._told, 65536)
        self._said += data
        if data:
            return
        self._loop.ignore_read(self._told)
        os.close(self._told)
        self._timer.cancel()
        if not self._said:
            self._done([], "no answer from the name service")
            return
        answer: "str | list[Any]" = wire.unpack(self._said)
        if isinstance(answer, str):
            self._done([], answer)
        else:
            self._done([(family, tuple(address)) for family, address in answer], "")


def _ask(tell: int, host: str, port: int) -> None:
    """Resolve the name in the child, after closing every descriptor inherited from the guest."""
    _signal.set_wakeup_fd(-1)
    os.dup2(tell, 3, False)
    close_above(3)
    try:
        found = _socket.getaddrinfo(host, port, 0, _socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        os.write(3, wire.pack(getattr(error, "strerror", None) or str(error)))
    else:
        os.write(3, wire.pack([[int(family), list(address)] for family, _, _, _, address in found]))


class Connector:
    """A sequence of connection attempts, one address after another; the last error is reported."""

    def __init__(self, tube: "ForwardedConnection", addresses: "list[Address]") -> None:
        self._tube = tube
        self._addresses = addresses
        self._error = OSError(errno.EHOSTUNREACH, "it has no address")
        self._next()

    def _next(self) -> None:
        if self._tube.over:
            return
        if not self._addresses:
            self._tube.fail(self._error)
            return
        family, address = self._addresses.pop(0)
        try:
            sock = _socket.socket(family, _socket.SOCK_STREAM)
        except OSError as error:
            self._error = error
            self._next()
            return
        sock.setblocking(False)
        if family != _socket.AF_UNIX:
            sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        self._give_up = self._tube.loop.call_later(_CONNECT_S, lambda: self._on_end(sock, errno.ETIMEDOUT))
        self._try(sock, address)

    def _try(self, sock: "_socket.socket", address: "Any") -> None:
        if sock.fileno() < 0:  # the attempt was cancelled
            return
        try:
            code = sock.connect_ex(address)
        except OSError as error:  # such as a path that is too long
            self._on_end(sock, error.errno or errno.EINVAL)
            return
        if code == errno.EINPROGRESS:
            self._tube.loop.on_write(sock.fileno(), lambda: self._on_end(sock, _outcome(sock)))
        elif code == errno.EAGAIN:  # a unix socket whose listener is busy
            self._tube.loop.call_later(_BUSY_S, lambda: self._try(sock, address))
        else:
            self._on_end(sock, code)

    def _on_end(self, sock: "_socket.socket", code: int) -> None:
        self._give_up.cancel()
        self._tube.loop.ignore_write(sock.fileno())
        if code or self._tube.over:
            sock.close()
            self._error = OSError(code, os.strerror(code))
            self._next()
        else:
            self._tube.open(sock)


def _outcome(sock: "_socket.socket") -> int:
    return sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR)


def connect(tube: "ForwardedConnection", host: str, port: int, path: bytes) -> None:
    """Connect to the unix socket ``path`` if given, else to the host's port; failures are reported."""
    addresses: "list[Address]" = [(_socket.AF_UNIX, path)] if path else numeric(host, port)
    if addresses:
        Connector(tube, addresses)
        return

    def on_lookup(addresses: "list[Address]", reason: str) -> None:
        if reason:
            tube.fail(OSError(errno.EHOSTUNREACH, reason))
        else:
            Connector(tube, addresses)

    Resolver(tube.loop, host, port, on_lookup)
