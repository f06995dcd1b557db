"""One forwarded connection: a request of the client on one side, a socket to a peer on the other."""

import _socket
import os
import struct

from ..core import wire
from ..streams.input_stream import InputStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..core.loop import Loop
    from ..core.server import Request

_READ = 64 << 10
_RESET = struct.pack("ii", 1, 0)


class PeerInput(InputStream):
    """Bytes to the peer; reports the end of the stream."""

    def __init__(self, request: "Request", on_closed: "Callable[[], None]") -> None:
        super().__init__(request.client.server.loop, request.send_credit)
        self._on_closed = on_closed

    def close(self) -> None:
        """Close after the last byte, or when the peer accepts no more."""
        if not self.closed:
            super().close()
            self._on_closed()


class ForwardedConnection:
    """A forwarder of bytes in both directions; ``service`` describes the streams.

    Bytes from the peer are never spooled: while the client does not read, the peer waits, as on any slow network.
    """

    def __init__(self, request: "Request") -> None:
        self.loop: "Loop" = request.client.server.loop
        self.over = False
        self._request = request
        self._socket: "_socket.socket | None" = None
        self._received = 0
        self._peer_ended = False
        self._outlet = request.open_output(wire.STDOUT)
        self._end = request.open_output(wire.STDERR)
        self._upstream = request.input = PeerInput(request, self._on_drain)
        request.cancel = self._abort

    def open(self, sock: "_socket.socket") -> None:
        """Start forwarding over a connected socket, which this object owns from now on."""
        self._socket = sock
        self._upstream.write_to(os.dup(sock.fileno()))
        self._read_on()

    def _read_on(self) -> None:
        if self._socket is not None and not self._peer_ended:
            self.loop.on_read(self._socket.fileno(), self._readable)

    def _readable(self) -> None:
        sock = self._socket
        if sock is None:
            return
        try:
            data = sock.recv(_READ)
        except BlockingIOError:
            return
        except OSError as error:
            self.fail(error)
            return
        if data:
            self._received += len(data)
            self._outlet.put(data)
            if self._outlet.full:
                self.loop.ignore_read(sock.fileno())
                self._outlet.on_room = self._read_on
        else:
            self._peer_ended = True
            self.loop.ignore_read(sock.fileno())
            self._end.put(wire.OFFSET.pack(self._received))
            self._check()

    def _on_drain(self) -> None:
        if self._socket is not None:
            try:
                self._socket.shutdown(_socket.SHUT_WR)
            except OSError:
                pass  # the peer is gone; the next read reports it
        self._check()

    def _check(self) -> None:
        if self._peer_ended and self._upstream.closed:
            self._finish({})

    def fail(self, error: OSError) -> None:
        """Report that the connection could not be established, or broke."""
        message = error.strerror or str(error)
        if self._socket is None:
            self._finish({"error": "os", "errno": error.errno or 0, "message": message})
        else:
            self._finish({"broken": message})

    def _abort(self) -> None:
        """Reset the peer's side after the client's side broke."""
        if self._socket is not None:
            reset_on_close(self._socket)
        self._finish({"cancelled": True})

    def _finish(self, answer: "dict[str, Any]") -> None:
        if self.over:
            return
        self.over = True
        sock = self._socket
        self._socket = None
        if sock is not None:
            self.loop.ignore_read(sock.fileno())
        self._upstream.close()
        if sock is not None:
            sock.close()
        self._request.finish(answer)


def reset_on_close(sock: "_socket.socket") -> None:
    """Make close(2) reset the connection, so that the peer sees an error instead of an orderly end."""
    sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_LINGER, _RESET)
