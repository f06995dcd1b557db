"""Listening: so many connections at once, so long for a request to arrive, and an end in good order."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, cast

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec_agent.server.app import Server

CONNECTIONS = 128
"""At once, whatever they are about; each may hold a request of `wire.MAX_BODY`."""
REQUEST_S = 30.0
"""So long a connection may take to send the next request's first lines, a byte at a time or not at all."""
_LINE = 8190
"""Bytes of the first line and of each header, of which there are 128 at most."""
_AT_ONCE_S = 0.01
"""To the library no time at all is one without an end."""
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nRetry-After: 5\r\nConnection: close\r\n"
    b"Content-Length: 21\r\n\r\ntoo many connections\n"
)


class _Full(asyncio.Protocol):
    """Answers a connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say so, and end it."""
        writing = cast("asyncio.Transport", transport)
        writing.write(_FULL)
        writing.close()


async def listen(server: Server, host: str, port: int, *, grace_s: float, listening: Callable[[str], None]) -> None:
    """Serve until cancelled; then let turns end for ``grace_s`` seconds, interrupt the others, and close the places.

    Raises:
        OSError: the address cannot be had.
    """
    runner = web.AppRunner(
        server.app,
        access_log=None,
        handler_cancellation=True,  # whoever went away has no use for what would still be done
        auto_decompress=False,  # a small body must not become a large one
        shutdown_timeout=max(grace_s, _AT_ONCE_S),
        keepalive_timeout=REQUEST_S,
        max_line_size=_LINE,
        max_field_size=_LINE,
    )
    await runner.setup()
    accept = runner.server
    if accept is None:
        raise RuntimeError("a runner that was set up has no server")

    def connected() -> asyncio.Protocol:
        return accept() if len(accept.connections) < CONNECTIONS else _Full()

    door: asyncio.Server | None = None
    try:
        door = await asyncio.get_running_loop().create_server(connected, host, port, backlog=CONNECTIONS)
        for each in door.sockets:
            listening(_url(each))
        await asyncio.Event().wait()
    finally:
        server.stopping = True
        if door is not None:
            door.close()
        await runner.cleanup()
        await server.close()


def _url(listens: socket.socket) -> str:
    address, port = listens.getsockname()[:2]
    named = f"[{address}]" if listens.family == socket.AF_INET6 else address
    return f"http://{named}:{port}/v1"
