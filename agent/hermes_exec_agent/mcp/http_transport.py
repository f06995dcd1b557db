"""The connection to a server over HTTP: its token, and the most that it may answer."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx2
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth
from mcp.client.streamable_http import streamable_http_client

from hermes_exec_agent.mcp.errors import parse_scope

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Generator

    from mcp.client._transport import TransportStreams

    from hermes_exec.config.secrets import Secret

LONGEST_ANSWER = 16 << 20
_CONNECT_S = 15.0
_MORE_S = 30.0
"""Seconds that a silent connection is kept beyond the time limit of a call."""


_FORBIDDEN = 403
REFUSALS = frozenset({401, 403, 404, 405})
"""Statuses with which a server says that it did not take a request."""
_STAND_INS = frozenset({"Server returned an error response", "Not Found", "Session terminated"})
"""Messages of the SDK's errors for a status whose answer has no error of the protocol."""


@dataclass(slots=True)
class SentRequest:
    """What is known of a request that was sent."""

    is_unsent: bool = False
    """Whether it never was, as there was no connection for it."""
    status: int = 0
    """Of the answer; 0 if there is none, or no HTTP."""
    media_type: str = ""
    needs_rights: bool = False
    """Whether the login has too few rights for it."""
    scope: str = ""
    """The rights that the server named."""

    def is_unanswered(self, message: str) -> bool:
        """Return whether an error with this message is the SDK's, as the answer is none of the protocol."""
        if self.status >= 400:
            return message in _STAND_INS
        return self.status > 200 or (
            self.status == 200 and not self.media_type.startswith(("application/json", "text/event-stream"))
        )


class RequestRecord:
    """The state of the requests of a connection."""

    def __init__(self) -> None:
        self.refused = 0
        """An HTTP status of at least 400; 0 if the last request was not refused."""
        self.last = SentRequest()
        """The last request."""
        self._watched: dict[bytes, SentRequest] = {}

    @contextmanager
    def watch(self, mark: str) -> Generator[SentRequest]:
        """Yield the state of the request that has this text in it."""
        found = self._watched[mark.encode()] = SentRequest()
        try:
            yield found
        finally:
            del self._watched[mark.encode()]

    def find(self, body: bytes) -> SentRequest:
        """Return the state of the request with this body; one that is thrown away if it is not watched."""
        return next((each for mark, each in self._watched.items() if mark in body), SentRequest())


class _Transport(httpx2.AsyncHTTPTransport):
    """Ends answers that are too long, and keeps a record of the requests."""

    def __init__(self, verify: ssl.SSLContext, record: RequestRecord) -> None:
        super().__init__(verify=verify)
        self._record = record

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        sent = self._record.find(await request.aread())
        try:
            response = await super().handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            sent.is_unsent = True
            raise
        sent.status, sent.media_type = response.status_code, response.headers.get("content-type", "").lower()
        self._record.refused = response.status_code if response.status_code >= 400 else 0
        if response.status_code == _FORBIDDEN:
            sent.needs_rights = extract_field_from_www_auth(response, "error") == "insufficient_scope"
            sent.scope = parse_scope(extract_scope_from_www_auth(response) or "")
        self._record.last = sent
        if isinstance(response.stream, httpx2.AsyncByteStream) and "event-stream" not in response.headers.get(
            "content-type", ""
        ):
            response.stream = _LimitedStream(response.stream)
        return response


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for data in self._stream:
            size += len(data)
            if size > LONGEST_ANSWER:
                raise httpx2.StreamError(f"an answer of more than {LONGEST_ANSWER} bytes")
            yield data

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def connect_http(
    url: str, token: Secret | None, record: RequestRecord, timeout_s: float, auth: httpx2.Auth | None = None
) -> AsyncGenerator[TransportStreams]:
    """Yield the streams of messages to and from the server at ``url``; ``auth`` adds the keys of a login."""
    headers = {"Authorization": f"Bearer {token.reveal()}"} if token is not None else {}
    timeout = httpx2.Timeout(_CONNECT_S, read=timeout_s + _MORE_S)
    if url.startswith("https:"):
        verify = await asyncio.to_thread(httpx2.create_ssl_context)  # reading certificates takes a tenth of a second
    else:
        verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    async with (
        httpx2.AsyncClient(headers=headers, auth=auth, timeout=timeout, transport=_Transport(verify, record)) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=LONGEST_ANSWER) as streams,
    ):
        yield streams
