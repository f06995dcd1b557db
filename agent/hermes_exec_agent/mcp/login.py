"""Logins at servers by OAuth: the SDK's own client, and where its keys are kept.

The keys are in the keyring of the desktop if there is one, or else in a file for this user alone. They belong to the
address of a server and to the issuer that registered this program there; the SDK compares the issuer with what the
server names, with the metadata that it publishes, and with the answer of the browser.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import logging
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
from mcp import Client, MCPError
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.client.auth.utils import union_scopes
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, BaseModel, Field, ValidationError

from hermes_exec.config.paths import (
    exists,
    make_private_folder,
    read_regular,
    state_folder,
    to_printable,
    write_private,
)
from hermes_exec.errors import ConfigError, HermesError, PlaceUnavailable, UsageError
from hermes_exec_agent.file_lock import wait_alone
from hermes_exec_agent.mcp.errors import flatten_errors, parse_scope
from hermes_exec_agent.quoting import quote

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
    from pathlib import Path

    from mcp.client.auth.oauth2 import OAuthContext

    from hermes_exec.config.secrets import Secret
    from hermes_exec.config.settings import McpSettings

logging.getLogger("mcp").addHandler(logging.NullHandler())  # failures of a server are in the errors
_SERVICE = "hermes-exec mcp"
_ANSWER_S = 30.0
_MOST_ROUNDS = 3
"""Times that a server may ask for further rights during one login."""
_RECOMMENDED = 1
"""The least priority of a keyring that the package recommends."""
_LOCAL = ("localhost", "127.0.0.1", "::1")


class Login(BaseModel):
    """The keys of one login."""

    url: str
    """The address of the server."""
    tokens: OAuthToken
    expires_at: float | None = None
    """In seconds since 1970; None if that is not known."""
    client: OAuthClientInformationFull
    metadata: OAuthMetadata | None = None
    """Of the authorization server, whose issuer was checked at the login."""
    id: str = ""
    """Differs between two logins, and stays while keys are renewed."""


class Keyring:
    """The keyring of the desktop, through the package ``keyring``."""

    @staticmethod
    def find() -> Any:
        """Return the package; None if it is not installed, or has no keyring here that protects what it keeps.

        Packages bring keyrings of less than the recommended priority, such as files of plain text.
        """
        if importlib.util.find_spec("keyring") is None:
            return None
        package: Any = importlib.import_module("keyring")
        try:
            chosen = package.get_keyring()
            first = next(iter(getattr(chosen, "backends", ())), chosen)
            protects = first.priority >= _RECOMMENDED
        except Exception:  # noqa: BLE001  a keyring of any kind may fail in its own way
            return None
        return package if protects else None


def read_login(name: str, environ: Mapping[str, str]) -> Login | None:
    """Return the keys for a server; None if there are none.

    Raises:
        ConfigError: they cannot be read.
    """
    path = login_file(name, environ)
    text: str | bytes | None = read_regular(path) if exists(path) else None
    if text is None and (keyring := Keyring.find()) is not None:
        with contextlib.suppress(Exception):  # a locked keyring, for one, which a server without a login does not need
            text = keyring.get_password(_SERVICE, name)
    if text is None:
        return None
    try:
        return Login.model_validate_json(text)
    except ValidationError:
        raise ConfigError(
            f"the login of the MCP server {name} cannot be read", remedy=f"hermes-exec mcp login {name}"
        ) from None


def write_login(name: str, login: Login, environ: Mapping[str, str]) -> str:
    """Keep the keys for a server, and return where.

    Raises:
        ConfigError: they cannot be kept.
    """
    with _hold_keys(name, environ):
        return _write(name, login, environ)


def renew_login(name: str, login: Login, environ: Mapping[str, str]) -> bool:
    """Keep renewed keys of a login; return False, and keep none, if it was removed or replaced meanwhile.

    Raises:
        ConfigError: they cannot be kept.
    """
    with _hold_keys(name, environ):
        known = read_login(name, environ)
        if known is None or known.id != login.id:
            return False
        _write(name, login, environ)
        return True


def remove_login(name: str, environ: Mapping[str, str]) -> bool:
    """Remove the keys for a server; return whether there were some. A conversation that renews them brings none back.

    Raises:
        ConfigError: they are in a keyring that does not remove them.
    """
    with _hold_keys(name, environ):
        path = login_file(name, environ)
        found = exists(path)
        path.unlink(missing_ok=True)
        keyring = Keyring.find()
        try:
            if keyring is not None and keyring.get_password(_SERVICE, name) is not None:
                keyring.delete_password(_SERVICE, name)
                found = True
        except Exception as error:
            why = type(error).__name__
            raise ConfigError(f"the login of {name} is still in the keyring: {why}", remedy="unlock it") from error
        return found


@contextlib.contextmanager
def _hold_keys(name: str, environ: Mapping[str, str]) -> Generator[None]:
    """Let no other program change the keys for a server meanwhile."""
    path = login_file(name, environ).with_suffix(".lock")
    try:
        make_private_folder(path.parent)
    except OSError as error:
        raise ConfigError(f"{to_printable(path.parent)}: {error.strerror}", remedy="check the folder") from error
    with wait_alone(path):
        yield


def _write(name: str, login: Login, environ: Mapping[str, str]) -> str:
    text = login.model_dump_json(exclude_none=True)
    path = login_file(name, environ)
    keyring = Keyring.find()
    if keyring is not None:
        with contextlib.suppress(Exception):  # a locked keyring, for one
            keyring.set_password(_SERVICE, name, text)
            path.unlink(missing_ok=True)
            return "the keyring"
    try:
        write_private(path, text.encode())
    except OSError as error:
        raise ConfigError(f"{to_printable(path)}: {error.strerror}", remedy="check the folder") from error
    return to_printable(path)


def login_file(name: str, environ: Mapping[str, str]) -> Path:
    """Return the path of the file that keeps a server's keys."""
    return state_folder(environ) / "mcp" / f"{name}.login.json"


@dataclass(slots=True)
class _Storage:
    """Keeps what the SDK's client learns; see `mcp.client.auth.TokenStorage`."""

    name: str
    url: str
    environ: Mapping[str, str]
    context: OAuthContext | None = None
    client: OAuthClientInformationFull | None = None
    id: str = ""
    """Of the earlier login whose keys are used; of a login that begins, empty."""
    is_new: bool = False
    """Whether a login begins, which uses no earlier keys."""

    async def get_tokens(self) -> OAuthToken | None:
        login = None if self.is_new else await asyncio.to_thread(read_login, self.name, self.environ)
        return login.tokens if login is not None and (login.url, login.id) == (self.url, self.id) else None

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info

    async def set_tokens(self, tokens: OAuthToken) -> None:
        if self.client is None or self.context is None:
            return
        login = Login(
            url=self.url,
            tokens=tokens,
            expires_at=time.time() + tokens.expires_in if tokens.expires_in is not None else None,
            client=self.client,
            metadata=self.context.oauth_metadata,
            id=secrets.token_hex(16) if self.is_new else self.id,
        )
        if self.is_new:
            await asyncio.to_thread(write_login, self.name, login, self.environ)
        elif not await asyncio.to_thread(renew_login, self.name, login, self.environ):
            self.context.clear_tokens()  # the person logged out, or in again


class _ClientMetadata(OAuthClientMetadata):
    """What a login asks for: the rights that the server names, and some more in any case."""

    wanted: str = Field("", exclude=True)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field; the SDK sets ``scope`` to the rights that the server names."""
        super().__setattr__(name, (union_scopes(value, self.wanted) or None) if name == "scope" else value)


class StoredLogin(httpx2.Auth):
    """Adds the keys of an earlier login to requests, and renews them in time; it begins no login."""

    requires_response_body = True

    def __init__(self, provider: OAuthClientProvider) -> None:
        self._provider = provider

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield the requests; the answer to one that needs another login is that of the server."""
        flow = self._provider.async_auth_flow(request)
        sent = await anext(flow)
        try:
            while True:
                response = yield sent
                if sent is request and response.status_code in (401, 403):
                    return
                sent = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()


def find_auth(name: str, settings: McpSettings, environ: Mapping[str, str]) -> StoredLogin | None:
    """Return the keys of an earlier login at this address; None without one."""
    if settings.url is None or settings.token is not None:
        return None
    login = read_login(name, environ)
    if login is None or login.url != settings.url:
        return None
    storage = _Storage(name, settings.url, environ, client=login.client, id=login.id)
    redirects = login.client.redirect_uris or [AnyUrl("http://127.0.0.1/callback")]
    metadata = OAuthClientMetadata(client_name="hermes-exec", redirect_uris=redirects, scope=login.tokens.scope)
    provider = OAuthClientProvider(settings.url, metadata, storage)
    storage.context = provider.context
    provider.context.oauth_metadata = login.metadata
    provider.context.token_expiry_time = login.expires_at
    return StoredLogin(provider)


async def log_in(
    name: str,
    settings: McpSettings,
    environ: Mapping[str, str],
    *,
    redirect: str,
    show: Callable[[str], Awaitable[None]],
    receive: Callable[[], Awaitable[AuthorizationCodeResult]],
    secret: Secret | None = None,
    scope: str = "",
) -> bool:
    """Log in at a server; return whether it asked for a login at all.

    Args:
        name: of the server.
        settings: of the server.
        environ: the variables that name the folder of state.
        redirect: the address to which the authorization server sends the browser back.
        show: shows the person the address to open.
        receive: returns what the browser came back with.
        secret: of ``client_id``.
        scope: rights to ask for, besides those that the server names and those of an earlier login.

    Raises:
        PlaceUnavailable: the server or its authorization server cannot be reached, or refuses.
        UsageError: an address is not safe.
    """
    url = settings.url
    if url is None or not _is_safe(url):
        raise UsageError(f"{name} has no url = 'https://…', which a login needs")
    storage = _Storage(name, url, environ, is_new=True)
    wanted = union_scopes(await asyncio.to_thread(_read_rights, name, url, environ), check_scope(scope))
    asked: list[str] = []

    async def open_page(address: str) -> None:
        ends = [address, *_list_endpoints(provider.context)]
        for each in ends:
            if not _is_safe(each):
                raise UsageError(f"the authorization server of {name} has an address without https")
        if len(asked) == _MOST_ROUNDS:
            raise PlaceUnavailable(f"the MCP server {name} asks for more rights after {_MOST_ROUNDS} logins")
        asked.append(address)
        await show(address)

    metadata = _ClientMetadata(client_name="hermes-exec", redirect_uris=[AnyUrl(redirect)], wanted=wanted or "")
    provider = OAuthClientProvider(
        url, metadata, storage, open_page, receive, client_metadata_url=settings.client_metadata_url
    )
    storage.context = provider.context
    if settings.client_id is not None:
        storage.client = OAuthClientInformationFull(
            client_id=settings.client_id,
            client_secret=secret.reveal() if secret is not None else None,
            redirect_uris=[AnyUrl(redirect)],
            token_endpoint_auth_method="client_secret_basic" if secret is not None else "none",
        )
    try:
        async with (
            httpx2.AsyncClient(auth=provider, timeout=_ANSWER_S) as client,
            Client(
                streamable_http_client(url, http_client=client), read_timeout_seconds=_ANSWER_S, cache=None
            ) as session,
        ):
            await session.list_tools()  # a server may ask for more rights only now
    except Exception as error:  # noqa: BLE001  a group of errors where a task of the SDK failed
        raise _explain(name, flatten_errors(error)) from None
    return bool(asked)


def check_scope(text: str) -> str:
    """Return the rights that a person asks for.

    Raises:
        UsageError: one has a form that no right has.
    """
    if text.strip() and not parse_scope(text):
        raise UsageError(
            f"--scope {to_printable(text)}: not names of rights", remedy="--scope 'files:read files:write'"
        )
    return parse_scope(text)


def _read_rights(name: str, url: str, environ: Mapping[str, str]) -> str:
    """Return the rights of an earlier login at this address; empty without one."""
    with contextlib.suppress(ConfigError):  # a login that cannot be read is replaced
        login = read_login(name, environ)
        if login is not None and login.url == url:
            return parse_scope(login.tokens.scope or "")
    return ""


def _list_endpoints(context: OAuthContext) -> list[str]:
    metadata = context.oauth_metadata
    return [] if metadata is None else [str(metadata.authorization_endpoint), str(metadata.token_endpoint)]


def _is_safe(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOCAL)


def _explain(name: str, errors: Sequence[Exception]) -> HermesError:
    """Return the error to show, without what an authorization server wrote beyond a line."""
    for error in errors:
        if isinstance(error, HermesError):
            return error
    chosen = next((each for each in errors if isinstance(each, OAuthFlowError)), errors[0])
    told = isinstance(chosen, OAuthFlowError | MCPError)
    why = quote(str(chosen).partition(": {")[0].partition("\n")[0]) if told else type(chosen).__name__
    return PlaceUnavailable(f"the login at the MCP server {name} failed: {why}")
