"""Forwarded connections, seen from here: each is a socket of ours and a request of the link."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Any

from hermes_exec.guest.core import wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec.transport.call import Call
    from hermes_exec.transport.protocol import Running

_RESET = struct.pack("ii", 1, 0)
READ = 256 << 10
"""Bytes that are read ahead of a socket of ours."""


class Tube:
    """Carries bytes both ways, each as fast as whoever reads them. It is the sink of its request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._queue: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._end = b""
        self._written = 0

    def feed(self, call: Running, channel: int, data: bytes, /) -> None:
        """Take what the peer in the place has sent, or the count of bytes after which it ended."""
        if channel == wire.STDOUT:
            self._queue.append(data)
        else:
            self._end += data
            call.consumed(channel, len(data))
        self._wake.set()

    async def carry(self, call: Call) -> dict[str, Any]:
        """Carry bytes until both directions have ended or the connection broke; gives the answer.

        Raises:
            HermesError: the place was lost.
        """
        call.answer.add_done_callback(lambda _: self._wake.set())
        sending = asyncio.create_task(self._send(call))
        try:
            await self._receive(call)
            answer = call.answer.result()
            if not answer:  # both directions came to their end
                self._writer.close()
                await self._writer.wait_closed()
        except OSError as error:  # our own socket broke
            return {"broken": str(error)}
        else:
            return answer
        finally:
            call.discard()
            call.cancel()
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            self.reset()

    def reset(self) -> None:
        """Break the connection so that its peer knows it from an end; nothing, once it was closed."""
        if not self._writer.transport.is_closing():
            own: socket.socket = self._writer.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._writer.transport.abort()

    async def _send(self, call: Call) -> None:
        try:
            while data := await self._reader.read(READ):
                await call.write(data)
        except OSError:
            call.cancel()
        else:
            call.write_eof()

    async def _receive(self, call: Call) -> None:
        ended = False
        while True:
            while self._queue:
                data = self._queue.popleft()
                self._writer.write(data)
                await self._writer.drain()
                self._written += len(data)
                call.consumed(wire.STDOUT, len(data))
            if not ended and len(self._end) == wire.OFFSET.size:
                ended = wire.OFFSET.unpack(self._end)[0] == self._written
                if ended:
                    self._writer.write_eof()
            if call.answer.done():
                return
            self._wake.clear()
            await self._wake.wait()


class Arrivals:
    """The output of a listener in the place: its port, then a number for each connection."""

    def __init__(self) -> None:
        self.port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.on_arrival: Callable[[int], None]
        self._held = b""

    def feed(self, call: Running, channel: int, data: bytes, /) -> None:
        """Take eight bytes for each."""
        call.consumed(channel, len(data))
        self._held += data
        whole = len(self._held) // 8 * 8
        numbers = [number for (number,) in wire.OFFSET.iter_unpack(self._held[:whole])]
        self._held = self._held[whole:]
        for number in numbers:
            if self.port.done():
                self.on_arrival(number)
            else:
                self.port.set_result(number)
