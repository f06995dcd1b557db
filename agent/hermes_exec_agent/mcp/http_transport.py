"""The connection to a server over HTTP: its token, and the most that it may answer."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx2
from mcp.client.streamable_http import streamable_http_client

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from mcp.client._transport import TransportStreams

    from hermes_exec.config.secrets import Secret

LONGEST_ANSWER = 16 << 20
_CONNECT_S = 15.0
_MORE_S = 30.0
"""Seconds that a silent connection is kept beyond the time limit of a call."""


class RequestRecord:
    """Which requests of a connection were refused or never sent."""

    def __init__(self) -> None:
        self.refused = 0
        """An HTTP status of at least 400; 0 if the last request was not refused."""
        self.unsent: list[bytes] = []

    def take_unsent(self, mark: str) -> bool:
        """Return whether the request with this text in it was never sent, as there was no connection for it."""
        found = [body for body in self.unsent if mark.encode() in body]
        self.unsent = []
        return bool(found)


class _Transport(httpx2.AsyncHTTPTransport):
    """Ends answers that are too long, and keeps a record of the requests."""

    def __init__(self, verify: ssl.SSLContext, record: RequestRecord) -> None:
        super().__init__(verify=verify)
        self._record = record

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        try:
            response = await super().handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            self._record.unsent.append(await request.aread())
            raise
        self._record.refused = response.status_code if response.status_code >= 400 else 0
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
    url: str, token: Secret | None, record: RequestRecord, timeout_s: float
) -> AsyncGenerator[TransportStreams]:
    """Yield the streams of messages to and from the server at ``url``."""
    headers = {"Authorization": f"Bearer {token.reveal()}"} if token is not None else {}
    timeout = httpx2.Timeout(_CONNECT_S, read=timeout_s + _MORE_S)
    if url.startswith("https:"):
        verify = await asyncio.to_thread(httpx2.create_ssl_context)  # reading certificates takes a tenth of a second
    else:
        verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, transport=_Transport(verify, record)) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=LONGEST_ANSWER) as streams,
    ):
        yield streams
