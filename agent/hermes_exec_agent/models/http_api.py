"""Requests to an endpoint with OpenAI's API, by ``httpx2``: their failures, their bounded replies and their events.

The vendor's SDK is not used: its import takes most of a second, and it would check every message of every request.
"""

from __future__ import annotations

import json
import os
import re
import ssl
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from hermes_exec_agent.errors import ModelRefused
from hermes_exec_agent.models.assembly import ReplyTooLong

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    import httpx2

    from hermes_exec.config.secrets import Secret

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
"""Hosts that no proxy can reach for us."""
_VENDOR = "api.openai.com"
_ACCOUNT = {"openai-organization": "OPENAI_ORG_ID", "openai-project": "OPENAI_PROJECT_ID"}
"""Headers that choose an account of the vendor's, and the variables with their values."""
_LARGEST = 256 << 20
"""Bytes of a reply that is not streamed; the token ids and logprobs of a long one need most of it."""
_LARGEST_EVENT = 64 << 20
_LARGEST_ERROR = 1 << 20
_LINE_END = re.compile(rb"\r\n|\r|\n")


class StatusError(Exception):
    """An endpoint answered with an HTTP status that is not a success."""

    def __init__(self, response: httpx2.Response, content: bytes) -> None:
        """``content`` is the begin of its body."""
        super().__init__(response.status_code)
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.request = response.request
        self.body = _parse_error(content)
        """The JSON of the error, or the text of the body."""


def _parse_error(content: bytes) -> Any:
    try:
        value: Any = json.loads(content)
    except (ValueError, RecursionError):
        return content.decode("utf-8", "replace").strip()
    return cast("dict[str, Any]", value).get("error", value) if isinstance(value, dict) else value


class ReplyError(Exception):
    """An endpoint sent an error in place of a reply, or in the middle of one; the argument is its message."""


def create_options(base_url: str, *, read_s: float, connect_s: float) -> dict[str, Any]:
    """Return the options of a client of ``httpx2`` for an endpoint."""
    import httpx2

    parts = urlsplit(base_url)
    is_local = parts.hostname in LOOPBACK
    return {
        "timeout": httpx2.Timeout(read_s, connect=connect_s),
        "trust_env": not is_local,
        # Loading the system's certificates takes long, and a server of this machine without TLS needs none of them.
        "verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if is_local and parts.scheme == "http" else True,
        "follow_redirects": True,  # to another origin, without the key
        "limits": httpx2.Limits(max_connections=1000, max_keepalive_connections=100),
    }


def create_headers(name: str, base_url: str, key: Secret | None) -> dict[str, str]:
    """Return the headers of requests to the endpoint of the model ``name``.

    Raises:
        ModelRefused: no header can contain the key.
    """
    headers = {"accept": "application/json", "content-type": "application/json", "user-agent": "hermes-exec"}
    if urlsplit(base_url).hostname == _VENDOR:
        headers |= {header: value for header, variable in _ACCOUNT.items() if (value := os.environ.get(variable))}
    if key is not None:
        value = key.reveal()
        if not (value.isascii() and value.isprintable()):
            raise ModelRefused(
                f"{name}: its key has characters that no HTTP header can contain", remedy=f"look at {key.name}"
            )
        headers["authorization"] = f"Bearer {value}"
    return headers


class ApiClient:
    """Sends requests to one endpoint, over connections that stay open."""

    def __init__(self, http: httpx2.AsyncClient, url: str, headers: dict[str, str]) -> None:
        """``url`` is the address of the requests."""
        self._http = http
        self._url = url
        self._headers = headers

    async def open(self, body: dict[str, Any], *, read_s: float | None = None) -> httpx2.Response:
        """Send a request and return its response, whose body is still to be read; the caller closes it.

        Args:
            body: JSON.
            read_s: how long the endpoint may be silent; by default the limit of the client.

        Raises:
            StatusError: its status is not a success.
            httpx2.HTTPError: the request failed.
        """
        request = self._http.build_request("POST", self._url, content=encode_body(body), headers=self._headers)
        if read_s is not None:
            request.extensions["timeout"] = {**request.extensions["timeout"], "read": read_s}
        response = await self._http.send(request, stream=True)
        if response.is_success:
            return response
        try:
            content = b""
            async for piece in response.aiter_bytes():
                content += piece
                if len(content) > _LARGEST_ERROR:
                    break
            raise StatusError(response, content)
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Give the connections back."""
        await self._http.aclose()


def connect(http: httpx2.AsyncClient, name: str, base_url: str, key: Secret | None) -> ApiClient:
    """Return a client that asks the model ``name``; nothing is sent yet.

    Raises:
        ModelRefused: no header can contain the key.
    """
    return ApiClient(http, f"{base_url.rstrip('/')}/chat/completions", create_headers(name, base_url, key))


def encode_body(body: dict[str, Any]) -> bytes:
    """Return JSON without spaces."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


async def read_reply(response: httpx2.Response) -> dict[str, Any]:
    """Return a reply that is not streamed.

    Raises:
        ReplyTooLong: it exceeds 256 MiB.
        ReplyError: it is an error.
        ValueError: it is not JSON.
        TypeError: it is JSON of another shape.
        httpx2.HTTPError: it did not arrive.
    """
    pieces: list[bytes] = []
    size = 0
    async for piece in response.aiter_bytes():
        size += len(piece)
        if size > _LARGEST:
            raise ReplyTooLong
        pieces.append(piece)
    return parse_reply(b"".join(pieces))


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    """Yield the JSON of each server-sent event until ``[DONE]`` or the end.

    Raises:
        ReplyTooLong: one of them exceeds 64 MiB.
        ReplyError: one of them is an error.
        ValueError: one of them is not JSON.
        TypeError: one of them is JSON of another shape.
    """
    reader = EventReader()
    async for chunk in chunks:
        for data in reader.feed(chunk):
            if data.startswith(b"[DONE]"):
                return
            yield parse_reply(data)


def parse_reply(data: bytes) -> dict[str, Any]:
    """Return the JSON of a reply, or of a part of one.

    Raises:
        ReplyError: it is an error.
        ValueError: it is not JSON.
        TypeError: it is JSON of another shape.
    """
    value: Any = json.loads(data.decode())
    if not isinstance(value, dict):
        raise TypeError("a reply that is not an object")
    reply = cast("dict[str, Any]", value)
    if error := reply.get("error"):
        message: Any = cast("dict[str, Any]", error).get("message") if isinstance(error, dict) else error
        raise ReplyError(message if message and isinstance(message, str) else "an error without a message")
    return reply


class EventReader:
    """Splits a stream into the data of server-sent events; an event that is cut off at its end is dropped."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        """The pieces of the line that is arriving."""
        self._data: list[bytes] = []
        """The lines of the event that is arriving."""
        self._size = 0
        self._was_return = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the data of the events that end in ``chunk``.

        Raises:
            ReplyTooLong: an event exceeds 64 MiB.
        """
        if not chunk:
            return
        if self._was_return:
            chunk = chunk.removeprefix(b"\n")
        self._was_return = chunk.endswith(b"\r")
        first, *others = _LINE_END.split(chunk)
        self._add(first)
        for piece in others:
            if (data := self._end_line()) is not None:
                yield data
            self._add(piece)

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > _LARGEST_EVENT:
            raise ReplyTooLong
        self._line.append(piece)

    def _end_line(self) -> bytes | None:
        """End the current line; return the data of the event that it ends, if it does."""
        line = b"".join(self._line)
        self._line.clear()
        if line:
            field, _, value = line.partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
            else:
                self._size -= len(line)
            return None
        data, self._data, self._size = self._data, [], 0
        return b"\n".join(data) if data else None
