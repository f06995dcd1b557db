"""Wait on this machine for the browser of a person who logs in."""

from __future__ import annotations

import asyncio
import hmac
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

import uvicorn
from mcp.shared.auth import AuthorizationCodeResult
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from hermes_exec._async import wait_done
from hermes_exec.errors import PlaceUnavailable, UsageError
from hermes_exec_agent.mcp.server_http import QuietServer
from hermes_exec_agent.quoting import quote

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request

_PATH = "/callback"
_HOST = "127.0.0.1"
WAIT_S = 600.0
_CLOSE_S = 2


class LoginPage:
    """The address to which the browser comes back."""

    def __init__(self, port: int) -> None:
        self.redirect = f"http://{_HOST}:{port}{_PATH}"
        self._state = ""
        """Of the login that waits for the browser; any page that the person opens can send other requests here."""
        self._answers: asyncio.Queue[AuthorizationCodeResult | PlaceUnavailable] = asyncio.Queue(1)

    def expect(self, address: str) -> None:
        """Take the answer of the login that begins at ``address``, once, and no other one."""
        self._state = dict(parse_qsl(urlsplit(address).query)).get("state", "")

    async def receive(self) -> AuthorizationCodeResult:
        """Wait for the browser.

        Raises:
            PlaceUnavailable: the answer does not arrive in time, or the person refused.
        """
        try:
            answer = await asyncio.wait_for(self._answers.get(), WAIT_S)
        except TimeoutError:
            raise PlaceUnavailable(f"the browser did not come back within {WAIT_S:g} s") from None
        if isinstance(answer, PlaceUnavailable):
            raise answer
        return answer

    async def handle(self, request: Request) -> PlainTextResponse:
        """Take the answer."""
        query = request.query_params
        state = query.get("state", "")
        if not self._state or not hmac.compare_digest(state.encode(), self._state.encode()):
            return PlainTextResponse("No login waits for this answer.", 400)
        answer: AuthorizationCodeResult | PlaceUnavailable
        if "error" in query:
            answer, text = PlaceUnavailable(f"the login was refused: {quote(query['error'], 100)}"), "was refused"
        elif "code" in query:
            answer = AuthorizationCodeResult(code=query["code"], state=state, iss=query.get("iss"))
            text = "goes on in your terminal"
        else:
            return PlainTextResponse("There is no code in this address.", 400)
        self._state = ""
        self._answers.put_nowait(answer)
        return PlainTextResponse(f"The login {text}. You can close this page.")


@asynccontextmanager
async def open_login_page(port: int = 0) -> AsyncGenerator[LoginPage]:
    """Listen on this machine; 0 selects a free port.

    Raises:
        UsageError: the port is in use.
    """
    try:
        listener = socket.create_server((_HOST, port))
    except OSError as error:
        raise UsageError(f"login_port = {port}: {error.strerror}", remedy="another port") from None
    page = LoginPage(listener.getsockname()[1])
    app = Starlette(routes=[Route(_PATH, page.handle)])
    config = uvicorn.Config(
        app, log_config=None, lifespan="off", access_log=False, timeout_graceful_shutdown=_CLOSE_S, ws="none"
    )
    serving = asyncio.create_task((running := QuietServer(config)).serve(sockets=[listener]))
    try:
        yield page
    finally:
        running.should_exit = True
        await wait_done(serving)
