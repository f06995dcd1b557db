"""Writes to a non-blocking socket: bytes that it does not accept at once are sent later."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING

from hermes_exec.transport.write_buffer import WriteBuffer

if TYPE_CHECKING:
    from collections.abc import Sequence

WAIT = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""The errors of a socket that would block."""


class Sender:
    """The output of one connection. Its reader detects a broken connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = connection
        self._outgoing = WriteBuffer()
        self._waiting = False
        self._eof = False
        self._open = True

    @property
    def unsent(self) -> int:
        """Return the number of bytes that the socket has not taken."""
        return self._outgoing.size

    def write(self, *parts: bytes | memoryview) -> None:
        """Queue bytes, and send as many as the socket accepts."""
        if self._eof or not self._open:
            return
        self._outgoing.add(parts)
        if not self._waiting:
            self._flush()

    def write_eof(self) -> None:
        """Shut down the output once everything queued is sent."""
        if not self._eof:
            self._eof = True
            if not self.unsent:
                self._shut()

    async def drain(self) -> None:
        """Wait until at most 1 MiB is queued, or sending has stopped."""
        await self._outgoing.drain()

    def stop(self) -> None:
        """Stop sending, and drop the queue."""
        self._open = False
        self._wait(on=False)
        self._outgoing.clear()

    def _flush(self) -> None:
        try:
            done = self._outgoing.flush(self._send)
        except OSError:
            self.stop()
            return
        self._wait(on=not done)
        if done and self._eof:
            self._shut()

    def _send(self, parts: Sequence[bytes | memoryview]) -> int:
        try:
            if isinstance(self._socket, ssl.SSLSocket):
                return self._socket.send(parts[0])
            return self._socket.sendmsg(parts)
        except WAIT:
            return 0

    def _wait(self, *, on: bool) -> None:
        if on and not self._waiting:
            self._loop.add_writer(self._socket, self._flush)
        elif self._waiting and not on:
            self._loop.remove_writer(self._socket)
        self._waiting = on

    def _shut(self) -> None:
        if not self._open:
            return
        self._open = False
        try:
            if isinstance(self._socket, ssl.SSLSocket):
                self._socket.unwrap()  # notifies the other side, which may still send bytes
            else:
                self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has ended, or (TLS) waits for the other side's close_notify
