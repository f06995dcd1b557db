"""Sending to a socket that does not block: what it takes at once is sent at once, the rest when it can."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque

WAIT = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What a socket raises that would have to wait."""
_LOW = 1 << 20
_BATCH = 64


class Sender:
    """The way out of one connection. A connection that breaks is for its reader to notice."""

    def __init__(self, connection: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = connection
        self._queue: deque[bytes | memoryview] = deque()
        self._waiting = False
        self._eof = False
        self._open = True
        self._drained: asyncio.Future[None] | None = None
        self.unsent = 0

    def write(self, *parts: bytes | memoryview) -> None:
        """Queue bytes, and send what the socket takes."""
        if self._eof or not self._open:
            return
        self._queue.extend(parts)
        self.unsent += sum(map(len, parts))
        if not self._waiting:
            self._flush()

    def write_eof(self) -> None:
        """Say that nothing more comes, once everything queued is sent."""
        if not self._eof:
            self._eof = True
            if not self._queue:
                self._shut()

    async def drained(self) -> None:
        """Return when at most 1 MiB is queued, or nothing is sent any more."""
        if self.unsent > _LOW:
            self._drained = self._drained or self._loop.create_future()
            await asyncio.shield(self._drained)

    def stop(self) -> None:
        """Send nothing more, and forget what is queued."""
        self._open = False
        self._wait(on=False)
        self._queue.clear()
        self.unsent = 0
        self._wake()

    def _flush(self) -> None:
        while self._queue:
            parts = [self._queue.popleft() for _ in range(min(len(self._queue), _BATCH))]
            try:
                done = self._send(parts)
            except WAIT:
                done = 0
            except OSError:
                self.stop()
                return
            self.unsent -= done
            while parts and done >= len(parts[0]):
                done -= len(parts.pop(0))
            if parts:
                parts[0] = memoryview(parts[0])[done:]
                self._queue.extendleft(reversed(parts))
                self._wait(on=True)
                break
        if self.unsent <= _LOW:
            self._wake()
        if not self._queue:
            self._wait(on=False)
            if self._eof:
                self._shut()

    def _send(self, parts: list[bytes | memoryview]) -> int:
        if isinstance(self._socket, ssl.SSLSocket):
            return self._socket.send(parts[0])
        return self._socket.sendmsg(parts)

    def _wait(self, *, on: bool) -> None:
        if on and not self._waiting:
            self._loop.add_writer(self._socket, self._flush)
        elif self._waiting and not on:
            self._loop.remove_writer(self._socket)
        self._waiting = on

    def _wake(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    def _shut(self) -> None:
        if not self._open:
            return
        self._open = False
        try:
            if isinstance(self._socket, ssl.SSLSocket):
                self._socket.unwrap()  # says so to the other side, whose own bytes still come
            else:
                self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it is at its end, or (TLS) waits for the other side's farewell
