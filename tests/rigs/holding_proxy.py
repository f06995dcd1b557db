"""A TCP port whose connections lead elsewhere, and which takes bytes without passing them on while it is told to."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class HoldingProxy:
    """Leads to a port, or to the path of a unix socket."""

    def __init__(self, to: tuple[str, int] | str) -> None:
        self._to = to
        self._passes = asyncio.Event()
        self._passes.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    def hold(self) -> None:
        """Pass nothing on. Connections are accepted, and bytes acknowledged, as kernels and proxies do."""
        self._passes.clear()

    def release(self) -> None:
        """Pass on what was held, and what comes."""
        self._passes.set()

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[HoldingProxy]:
        """Listen on a free port."""
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if isinstance(self._to, str):
            there, back = await asyncio.open_unix_connection(self._to)
        else:
            there, back = await asyncio.open_connection(*self._to)
        try:
            await asyncio.gather(self._copy(reader, back), self._copy(there, writer))
        finally:
            writer.close()
            back.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._passes.wait()
                writer.write(data)
                await writer.drain()
            writer.write_eof()
