"""A server of the protocol with an authorization server of its own, both of the SDK, on one loopback address.

A person's browser is a client that follows the redirects of the address that it is shown.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    IdentityAssertionParams,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

from hermes_exec_agent.mcp.server_http import QuietServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable


RIGHT = "files:write"


class Authority:
    """The authorization server's memory. A token is valid for ``expires_s`` seconds; a refresh token works once."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self.expires_s = 3600
        self.says = True
        self.issuer = ""
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: dict[str, AccessToken] = {}
        self.refreshes: dict[str, RefreshToken] = {}
        self.refreshed = 0
        self.before_refresh: Callable[[], Awaitable[None]] | None = None
        self.refused = 0
        """Calls that lacked a right."""
        self.scope = RIGHT
        """The rights that the server names then."""

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        if not self.says:
            return construct_redirect_uri(str(params.redirect_uri), error="access_denied", state=params.state)
        code = secrets.token_urlsafe(24)
        self.codes[code] = AuthorizationCode(
            code=code, client_id=client.client_id, scopes=params.scopes or [], expires_at=time.time() + 60,
            code_challenge=params.code_challenge, redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly, resource=params.resource,
        )  # fmt: skip
        more = {"iss": self.issuer} if self.issuer else {}
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state, **more)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._give(client.client_id, authorization_code.scopes)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refreshes.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if self.refreshes.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        if self.before_refresh is not None:
            await self.before_refresh()
        self.refreshed += 1
        return self._give(client.client_id, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        found = self.tokens.get(token)
        return found if found is not None and (found.expires_at or 0) > time.time() else None

    async def exchange_identity_assertion(
        self, client: OAuthClientInformationFull, params: IdentityAssertionParams
    ) -> OAuthToken:
        raise TokenError("unsupported_grant_type")

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.tokens.pop(token.token, None)

    def _give(self, client: str, scopes: list[str]) -> OAuthToken:
        access, refresh = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self.tokens[access] = AccessToken(
            token=access, client_id=client, scopes=scopes, expires_at=int(time.time()) + self.expires_s,
            resource=self.resource,
        )  # fmt: skip
        self.refreshes[refresh] = RefreshToken(token=refresh, client_id=client, scopes=scopes)
        return OAuthToken(access_token=access, expires_in=self.expires_s, refresh_token=refresh)


def _demand_right(app: Any, authority: Authority) -> Any:
    """Return an application that answers calls of ``change`` with the status 403 if the login lacks the right."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        token = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
        rights = authority.tokens[token].scopes if token in authority.tokens else [RIGHT]
        if b'"tools/call"' in body and b'"change"' in body and RIGHT not in rights:
            authority.refused += 1
            named = f'Bearer error="insufficient_scope", scope="{authority.scope}"'.encode()
            await send({"type": "http.response.start", "status": 403, "headers": [(b"www-authenticate", named)]})
            await send({"type": "http.response.body", "body": b""})
            return
        given = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Any:
            return given.pop() if given else await receive()

        await app(scope, replay, send)

    return serve


@asynccontextmanager
async def open_protected_server() -> AsyncGenerator[tuple[str, Authority]]:
    """Yield the address of a server whose tool ``whoami`` needs a login, and ``change`` a right; and its authority."""
    listener = socket.create_server(("127.0.0.1", 0))
    origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
    authority = Authority(f"{origin}/mcp")
    server = MCPServer(
        "protected",
        auth_server_provider=authority,
        auth=AuthSettings(
            issuer_url=AnyHttpUrl(origin),
            resource_server_url=AnyHttpUrl(f"{origin}/mcp"),
            validate_token_resource=True,
            client_registration_options=ClientRegistrationOptions(enabled=True),
        ),
    )

    @server.tool()
    def whoami() -> str:
        """Return the person."""
        return "the person"

    @server.tool()
    def change() -> str:
        """Change something, which needs the right `RIGHT`."""
        return "changed"

    config = uvicorn.Config(
        _demand_right(server.streamable_http_app(), authority), log_config=None, lifespan="on", ws="none"
    )
    running = QuietServer(config)
    serving = asyncio.create_task(running.serve(sockets=[listener]))
    try:
        yield f"{origin}/mcp", authority
    finally:
        running.should_exit = True
        await serving
