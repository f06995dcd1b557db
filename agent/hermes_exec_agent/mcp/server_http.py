"""Serve over HTTP, for clients that send a token."""

from __future__ import annotations

import asyncio
import hmac
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn

from hermes_exec._async import wait_done
from hermes_exec.errors import PlaceUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from mcp.server.lowlevel.server import Server
    from starlette.types import ASGIApp, Receive, Scope, Send

    from hermes_exec.config.secrets import Secret

PATH = "/mcp"
_CLOSE_S = 5
"""Seconds that calls have to end after a signal, which cancels them."""


class TokenGuard:
    """Refuses requests without the token."""

    def __init__(self, app: ASGIApp, token: Secret) -> None:
        self._app = app
        self._expected = f"Bearer {token.reveal()}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with 401."""
        if scope["type"] == "http" and not self._is_permitted(scope):
            headers = [(b"www-authenticate", b"Bearer"), (b"content-type", b"text/plain")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b"the token is missing or wrong\n"})
            return
        await self._app(scope, receive, send)

    def _is_permitted(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self._expected)


class QuietServer(uvicorn.Server):
    """A server that leaves signals to its caller, who cancels it."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Handle no signals."""
        yield


async def serve_http(
    server: Server[Any], host: str, port: int, token: Secret, listening: Callable[[str], None]
) -> None:
    """Serve until this is cancelled.

    Args:
        server: the server of the protocol.
        host: the address to listen on.
        port: its port; 0 selects a free one.
        token: every request needs it.
        listening: called with the URL once requests are accepted.

    Raises:
        PlaceUnavailable: it cannot listen on that address.
    """
    app = TokenGuard(server.streamable_http_app(streamable_http_path=PATH, host=host), token)
    listener = _listen(host, port)
    config = uvicorn.Config(
        app, log_config=None, lifespan="on", access_log=False, timeout_graceful_shutdown=_CLOSE_S, ws="none"
    )
    serving = asyncio.create_task((running := QuietServer(config)).serve(sockets=[listener]))
    shown = f"[{host}]" if ":" in host else host
    listening(f"http://{shown}:{listener.getsockname()[1]}{PATH}")
    try:
        await asyncio.shield(serving)
    finally:
        running.should_exit = True
        await wait_done(serving)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise PlaceUnavailable(
            f"it cannot listen on {host}:{port}: {error.strerror or error}", remedy="--port 0, or another address"
        ) from None
