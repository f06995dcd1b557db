"""A proxy in front of a server, on a thread of its own, whose connections can be cut, held, delayed and refused."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_PIECE = 1 << 16
_RESET = struct.pack("ii", 1, 0)
"""``SO_LINGER`` with no time: closing then sends a reset."""

Address = tuple[str, int] | str
"""A host and a port, or the path of a unix socket."""


@dataclass(eq=False)
class _Direction:
    source: asyncio.StreamReader
    target: asyncio.StreamWriter
    is_ended: bool = False


@dataclass(eq=False)
class _Connection:
    directions: list[_Direction] = field(default_factory=list[_Direction])

    def close(self, *, reset: bool) -> None:
        for direction in self.directions:
            sock: socket.socket | None = direction.target.get_extra_info("socket")
            if reset and sock is not None and sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            direction.target.transport.abort()


class FaultyProxy:
    """Forwards connections from ``listen`` to ``server``; every method may be called from any thread."""

    def __init__(self, server: Address, listen: str = "") -> None:
        """``listen`` is the path of a unix socket; without one it is a free port of the loopback."""
        self._server = server
        self._listen = listen
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._delay_s = 0.0
        self._refuses = False
        self._loop = asyncio.new_event_loop()
        self._flows: list[asyncio.Event] = []
        self.port = 0
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._open)
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self, *, reset: bool) -> None:
        """Close every connection, with a reset or as if both ends had closed."""
        self._loop.call_soon_threadsafe(self._cut, reset)

    def half_close(self, chance: random.Random) -> None:
        """End one direction of one connection; the other direction goes on."""
        self._loop.call_soon_threadsafe(self._half_close, chance.random(), chance.randrange(2))

    def hold(self, *directions: int) -> None:
        """Stop forwarding what comes from the client (0) and from the server (1); new connections are accepted."""
        for direction in directions or (0, 1):
            self._loop.call_soon_threadsafe(self._flows[direction].clear)

    def delay(self, seconds: float) -> None:
        """Forward each piece so much later."""
        self._delay_s = seconds

    def refuse(self) -> None:
        """Close new connections as soon as they are accepted."""
        self._refuses = True

    def restore(self) -> None:
        """Undo ``hold``, ``delay`` and ``refuse``."""
        self._delay_s, self._refuses = 0.0, False
        for flow in self._flows:
            self._loop.call_soon_threadsafe(flow.set)

    def _do(self, step: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            await step()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

    async def _open(self) -> None:
        self._flows = [asyncio.Event(), asyncio.Event()]
        self.restore()
        if self._listen:
            self._listener: asyncio.Server = await asyncio.start_unix_server(self._accept, self._listen)
        else:
            self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
            self.port = self._listener.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._listener.close()
        self._cut(reset=False)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        try:
            if isinstance(self._server, str):
                there, to_there = await asyncio.open_unix_connection(self._server)
            else:
                there, to_there = await asyncio.open_connection(*self._server)
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection([_Direction(reader, to_there), _Direction(there, writer)])
        self._connections.add(connection)
        for number in (0, 1):
            task = asyncio.create_task(self._forward(connection, number))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(self, connection: _Connection, number: int) -> None:
        direction = connection.directions[number]
        try:
            while data := await direction.source.read(_PIECE):
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                await self._flows[number].wait()
                if not direction.is_ended:
                    direction.target.write(data)
                    await direction.target.drain()
            await self._flows[number].wait()
            if not direction.is_ended:
                direction.is_ended = True
                direction.target.write_eof()
        except (OSError, RuntimeError):
            connection.close(reset=False)
            direction.is_ended = True
        if all(each.is_ended for each in connection.directions):
            connection.close(reset=False)
            self._connections.discard(connection)

    def _cut(self, reset: bool) -> None:
        for connection in self._connections:
            connection.close(reset=reset)
        self._connections.clear()

    def _half_close(self, which: float, number: int) -> None:
        if not self._connections:
            return
        connection = list(self._connections)[int(which * len(self._connections))]
        direction = connection.directions[number]
        if not direction.is_ended and not direction.target.transport.is_closing():
            direction.is_ended = True
            direction.target.write_eof()
