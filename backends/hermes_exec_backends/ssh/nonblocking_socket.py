"""The socket that paramiko uses: a write never blocks, a read takes all available bytes in one call.

paramiko writes from several threads, and the event loop's thread must not block. So bytes that the kernel does not
accept at once are queued, and the loop writes them later. paramiko reads each packet in three small pieces; reading
ahead for it saves most of the system calls. After the login ``packets`` makes the loop read instead.
"""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import threading
from typing import TYPE_CHECKING

from hermes_exec.transport.write_buffer import WriteBuffer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

FULL = 512 << 10
"""Queued bytes at which channels stop adding more."""
_LOW = 128 << 10
_READ = 256 << 10
_WAKE_MS = 500
"""The interval at which an idle paramiko checks its own state."""


def _nothing() -> None:
    """Ignore the event: no callback is set."""


class NonblockingSocket:
    """A connected stream socket, shared by paramiko's thread and the event loop."""

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._sock = sock
        self._loop = loop
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._read = memoryview(b"")
        self._lock = threading.Lock()
        self._outgoing = WriteBuffer()
        self._closed = False
        self._waiting: list[Callable[[], None]] = []
        self._reader: Callable[[bytes | None], None] | None = None
        self.on_bytes: Callable[[], None] = _nothing
        """Called on the reading thread whenever bytes were received."""
        sock.setblocking(False)

    @property
    def full(self) -> bool:
        """Return whether the queue is full for now."""
        return self._outgoing.size > FULL

    @property
    def closed(self) -> bool:
        """Return whether the connection is closed for writing."""
        return self._closed

    def on_room(self, call: Callable[[], None]) -> None:
        """Call back once, on the loop, when there is room again. Call it on the loop."""
        self._waiting.append(call)

    def settimeout(self, _: float | None) -> None:
        """Ignore paramiko's wake-up interval; this socket uses a longer one."""

    def recv(self, size: int) -> bytes:
        """Wait a moment for bytes; raises TimeoutError when there are none. On paramiko's thread."""
        if not self._read:
            if not self._poll.poll(_WAKE_MS):
                raise TimeoutError
            try:
                self._read = memoryview(self._sock.recv(_READ))
            except BlockingIOError:
                raise TimeoutError from None
            self.on_bytes()
        data, self._read = self._read[:size], self._read[size:]
        return bytes(data)

    def on_loop(self, call: Callable[[], None]) -> None:
        """Call back on the loop, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: no reader is left
            self._loop.call_soon_threadsafe(call)

    def read(self, reader: Callable[[bytes | None], None] | None) -> None:
        """Make the loop read from now on, and pass bytes to ``reader``, and None at the end; or stop. On the loop.

        paramiko's thread must no longer read.
        """
        if self._sock.fileno() < 0:
            return
        self._reader = reader
        if reader is None:
            self._loop.remove_reader(self._sock)
            return
        self._loop.add_reader(self._sock, self._readable)
        if self._read:
            ahead, self._read = bytes(self._read), memoryview(b"")
            reader(ahead)

    def _readable(self) -> None:
        try:
            data = self._sock.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._sock)
        else:
            self.on_bytes()
        if self._reader is not None:
            self._reader(data or None)

    def send(self, data: bytes) -> int:
        """Send or queue all of ``data``, on any thread; raises OSError once the connection is broken."""
        self.write([data])
        return len(data)

    def write(self, parts: Sequence[bytes]) -> None:
        """Send or queue all ``parts``, like ``send``."""
        with self._lock:
            if self._closed:
                raise BrokenPipeError
            waits = self._outgoing.size > 0
            self._outgoing.add(parts)
            try:
                if not waits and not self._push():
                    self._loop.call_soon_threadsafe(self._write_on)
            except OSError:
                self._break()
                raise

    def _push(self) -> bool:
        try:
            return self._outgoing.flush(self._sock.sendmsg)
        except BlockingIOError:
            return False

    def _write_on(self) -> None:
        with self._lock:
            if not self._closed:
                self._loop.add_writer(self._sock, self._flush)

    def _flush(self) -> None:
        with self._lock:
            try:
                done = self._closed or self._push()
            except OSError:
                self._break()
                done = True
            if done:
                self._loop.remove_writer(self._sock)
        if self._outgoing.size <= _LOW:
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()

    def _break(self) -> None:
        self._closed = True
        self._outgoing.clear()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # this also wakes the reading thread

    def close(self) -> None:
        """Break the connection, on any thread. The descriptor itself stays open until ``dispose``."""
        with self._lock:
            if not self._closed:
                self._break()

    def dispose(self) -> None:
        """Close the descriptor, on the loop, once paramiko's thread has ended."""
        self.close()
        self._loop.remove_writer(self._sock)
        self._loop.remove_reader(self._sock)
        self._reader = None
        self._sock.close()
        self._waiting.clear()


def tune(sock: socket.socket, keepalive_s: float) -> None:
    """Send small packets at once, and make the kernel detect a dead peer.

    A ``Heartbeat`` detects an unresponsive program on the host, because a kernel or a proxy may acknowledge data that
    the program never reads. The kernel's own timers are faster when a whole machine is down.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        seconds = max(1, round(keepalive_s))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(keepalive_s * 3000))
