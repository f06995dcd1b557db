"""Forwarded connections on this side: each one is a local socket and a request of the link."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Any

from hermes_exec._async import cancel_and_wait
from hermes_exec.guest.core import wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec.transport.call import GuestCall
    from hermes_exec.transport.protocol import RunningCommand

_RESET = struct.pack("ii", 1, 0)
READ = 256 << 10
"""Bytes that are read ahead from a local socket."""


class ForwardedConnection:
    """Copies bytes in both directions, each as fast as its reader. It is the sink of its request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._queue: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._end = b""
        self._written = 0

    def feed(self, call: RunningCommand, channel: int, data: bytes, /) -> None:
        """Receive bytes from the peer in the target, or the count of bytes after which its output ended."""
        if channel == wire.STDOUT:
            self._queue.append(data)
        else:
            self._end += data
            call.acknowledge(channel, len(data))
        self._wake.set()

    async def carry(self, call: GuestCall) -> dict[str, Any]:
        """Copy bytes until both directions have ended or the connection broke; return the answer of the guest.

        Raises:
            HermesError: the target was lost.
        """
        call.answer.add_done_callback(lambda _: self._wake.set())
        sending = asyncio.create_task(self._send(call))
        try:
            await self._receive(call)
            answer = call.answer.result()
            if not answer:  # both directions have ended
                self._writer.close()
                await self._writer.wait_closed()
        except OSError as error:  # the local socket broke
            return {"broken": str(error)}
        else:
            return answer
        finally:
            call.discard()
            call.cancel()
            await cancel_and_wait([sending])
            self.reset()

    def reset(self) -> None:
        """Reset the connection (RST), so that its peer can tell it from an end; no effect once it is closed."""
        if not self._writer.transport.is_closing():
            own: socket.socket = self._writer.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._writer.transport.abort()

    async def _send(self, call: GuestCall) -> None:
        try:
            while data := await self._reader.read(READ):
                await call.write(data)
        except OSError:
            call.cancel()
        else:
            call.write_eof()

    async def _receive(self, call: GuestCall) -> None:
        ended = False
        while True:
            while self._queue:
                data = self._queue.popleft()
                self._writer.write(data)
                await self._writer.drain()
                self._written += len(data)
                call.acknowledge(wire.STDOUT, len(data))
            if not ended and len(self._end) == wire.OFFSET.size:
                ended = wire.OFFSET.unpack(self._end)[0] == self._written
                if ended:
                    self._writer.write_eof()
            if call.answer.done():
                return
            self._wake.clear()
            await self._wake.wait()


class ListenerSink:
    """The sink of a listener in the target, which sends its port, then a number for each connection."""

    def __init__(self) -> None:
        self.port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.on_arrival: Callable[[int], None]
        self._held = b""

    def feed(self, call: RunningCommand, channel: int, data: bytes, /) -> None:
        """Receive bytes, eight for each number."""
        call.acknowledge(channel, len(data))
        self._held += data
        whole = len(self._held) // 8 * 8
        numbers = [number for (number,) in wire.OFFSET.iter_unpack(self._held[:whole])]
        self._held = self._held[whole:]
        for number in numbers:
            if self.port.done():
                self.on_arrival(number)
            else:
                self.port.set_result(number)
