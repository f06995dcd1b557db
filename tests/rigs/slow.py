"""A way to a port of this machine that is long: what goes in comes out later, in both directions, at any rate."""

from __future__ import annotations

import asyncio
import contextlib


class Slow:
    """Connections to ``port``, by a port of its own, with ``latency_s`` for there and back."""

    def __init__(self, port: int, latency_s: float) -> None:
        self._port = port
        self._one_way_s = latency_s / 2
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen; gives the port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(self._carry(reader, back), self._carry(there, writer))

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()

        def deliver(data: bytes) -> None:
            with contextlib.suppress(OSError, RuntimeError):
                target.write(data) if data else target.close()

        data = b"x"
        while data:
            try:
                data = await source.read(256 << 10)
            except OSError:
                data = b""
            loop.call_later(self._one_way_s, deliver, data)
