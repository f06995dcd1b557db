"""Signal, by the REST and WebSocket interface of signal-cli-rest-api, which runs apart in its mode ``json-rpc``.

The daemon keeps no messages: it passes each to the WebSockets that are connected, and nothing acknowledges one. A
message that comes while the gateway is not connected is lost. Sending has no key that would make it idempotent.
"""

from __future__ import annotations

import base64
import json
import logging
import mimetypes
import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
from pydantic import BaseModel, Field

from hermes_exec.config.check import validate_table
from hermes_exec.config.secrets import resolve_secrets
from hermes_exec.config.values import Source
from hermes_exec_agent.frontends.gateway.adapter import (
    AdapterTraits,
    NotSent,
    PlatformDown,
    Rejected,
    SendUnknown,
)
from hermes_exec_agent.frontends.gateway.marks import to_signal
from hermes_exec_agent.frontends.gateway.signal_messages import InvalidFrame, SignalParser, check_answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.frontends.gateway.adapter import Choice, Incoming

_log = logging.getLogger("hermes_exec.gateway")
_RETRY_S = 5.0
_CONNECT_S = 20.0
_FILE_S = 25.0
_ANSWER = 1 << 16
"""The most bytes of an answer that are read."""


class SignalSettings(BaseModel, frozen=True, extra="forbid", strict=True):
    """One account of a daemon."""

    url: str = Field(default="http://127.0.0.1:8080", pattern=r"https?://[^\s?#]+")
    number: str = Field(pattern=r"\+[0-9]{5,15}")
    """The telephone number of the account."""
    token: Source | None = None
    """The source of a bearer token, if a proxy in front of the daemon asks for one; the daemon itself asks for none."""
    interval_s: float = Field(default=1.0, ge=0)
    """The shortest time between two messages in one chat."""
    limit_s: float = Field(default=60.0, gt=0)
    """Seconds to wait for an answer to a message."""


def create(name: str, table: Mapping[str, object]) -> SignalAdapter:
    """Return the adapter of an account.

    Raises:
        ConfigError: the table is wrong, or its token is missing.
    """
    settings = validate_table(SignalSettings, table, f"[gateway.platforms.{name}]")
    sources = {} if settings.token is None else {"token": settings.token}
    return SignalAdapter(settings, resolve_secrets(sources, os.environ).get("token"))


class SignalAdapter:
    """One account."""

    platform = "signal"

    def __init__(self, settings: SignalSettings, token: Secret | None) -> None:
        self.account = settings.number
        self.traits = AdapterTraits(2000, "bytes", settings.interval_s, largest_file=25 << 20)
        self._settings = settings
        self._token = token
        self._url = settings.url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def receive(self, accept: Callable[[Incoming], Awaitable[None]], ready: Callable[[], None]) -> None:
        """Connect, and pass on what the daemon delivers until the connection ends."""
        parser = SignalParser(self._settings.number, self._read_file)
        address = f"{self._url}/v1/receive/{quote(self._settings.number, safe='')}"
        try:
            async with self._open().ws_connect(address, heartbeat=30.0) as socket:
                ready()
                async for frame in socket:
                    if frame.type not in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                        break
                    try:
                        incoming = parser.parse(frame.data)
                    except InvalidFrame as error:
                        _log.warning("%s; it is ignored", error)
                        continue
                    if incoming is not None:
                        await accept(incoming)
        except (aiohttp.ClientError, OSError) as error:
            raise PlatformDown(_describe(error)) from error
        raise PlatformDown("signal-cli ended the connection")

    async def send(self, chat: str, text: str, choices: Sequence[Choice] = (), *, key: str) -> str:  # noqa: ARG002  no buttons and no keys here
        """Send a message."""
        return await self._post(chat, {"message": text, "text_mode": "styled"})

    async def send_file(self, chat: str, name: str, content: bytes, *, key: str) -> str:  # noqa: ARG002  no keys here
        """Send a file. The daemon makes a path of its name."""
        safe = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII).lstrip(".")[-100:] or "file"
        kind = mimetypes.guess_type(safe)[0] or "application/octet-stream"
        data = base64.b64encode(content).decode()
        return await self._post(
            chat, {"message": "", "base64_attachments": [f"data:{kind};filename={safe};base64,{data}"]}
        )

    def render(self, text: str) -> str:
        """Return Markdown as styled text."""
        return to_signal(text)

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self) -> aiohttp.ClientSession:
        """Return the session, which is of the running event loop."""
        if self._session is None:
            headers = {} if self._token is None else {"Authorization": f"Bearer {self._token.reveal()}"}
            self._session = aiohttp.ClientSession(headers=headers)
        return self._session

    async def _post(self, chat: str, parts: Mapping[str, object]) -> str:
        if not re.fullmatch(r"[\w+./=-]{1,200}", chat, re.ASCII):
            raise Rejected("the name of this chat cannot be one of Signal")
        body = {"number": self._settings.number, "recipients": [chat], **parts}
        limit = aiohttp.ClientTimeout(
            total=self._settings.limit_s, sock_connect=min(_CONNECT_S, self._settings.limit_s)
        )
        try:
            async with self._open().post(
                f"{self._url}/v2/send", json=body, timeout=limit, allow_redirects=False
            ) as answer:
                content = await _read(answer, _ANSWER)
                check_answer(answer.status, content.decode(errors="replace"), answer.headers.get("Retry-After", ""))
                found: Any = json.loads(content)
                return str(int(found["timestamp"]))
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotSent(_describe(error), retry_s=_RETRY_S) from error
        except (aiohttp.ClientError, OSError, LookupError, TypeError, ValueError) as error:
            raise SendUnknown(_describe(error)) from error

    async def _read_file(self, id: str, most: int) -> bytes:
        """Return the content of an attachment. It is tried twice, because its message does not come again."""
        limit = aiohttp.ClientTimeout(total=min(_FILE_S, self._settings.limit_s))
        address = f"{self._url}/v1/attachments/{quote(id, safe='')}"
        for _ in range(2):
            try:
                async with self._open().get(address, timeout=limit, allow_redirects=False) as answer:
                    if answer.status == 200:
                        return await _read(answer, most)
                    if answer.status < 500:
                        break
            except ValueError as error:
                raise Rejected(f"it has {error}") from error
            except (aiohttp.ClientError, OSError) as error:
                _log.warning("a file was not read: %s", _describe(error))
        raise Rejected("signal-cli did not deliver it")


async def _read(answer: aiohttp.ClientResponse, most: int) -> bytes:
    content = bytearray()
    async for chunk in answer.content.iter_chunked(_ANSWER):
        content += chunk
        if len(content) > most:
            raise ValueError(f"more than {most:,} bytes")
    return bytes(content)


def _describe(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "signal-cli does not answer"
    if isinstance(error, aiohttp.WSServerHandshakeError):
        return f"signal-cli answers {error.status}; it has to run in its mode json-rpc"
    return f"signal-cli cannot be reached ({type(error).__name__})"
