"""Fetch pages of the web from the agent's own process, which reaches networks that a page must not reach.

Every address is checked when its name is resolved and again when its socket is created, so the connection goes to a
checked address and a name that resolves to another one later (DNS rebinding) changes nothing. Redirects are followed
here, one by one, under the same checks. No proxy, cookie, password or file of credentials is used.
"""

from __future__ import annotations

import asyncio
import os
import socket
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from hermes_exec.errors import HermesError
from hermes_exec_agent.quoting import flatten
from hermes_exec_policies.egress.proxy import is_public

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from aiohttp.abc import ResolveResult

LIMIT_S = 20.0
MAX_BYTES = 10_000_000
"""Of a page, as it is sent and when it is decompressed."""
PORTS = (80, 443)
_REDIRECTS = 5
_PIECE = 1 << 16
_WBITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
_HEADERS = {
    "Accept": "text/html,application/xhtml+xml,text/*;q=0.9,application/json;q=0.9,application/xml;q=0.8,*/*;q=0.1",
    "Accept-Encoding": "gzip, deflate",
    "User-Agent": "hermes-exec (an agent that reads one page for a person)",
}
_SHOWN = 200


class AddressDenied(HermesError):
    """The guard refuses a URL; nothing was sent to its address."""


class PageUnavailable(HermesError):
    """A page could not be fetched."""


@dataclass(frozen=True, slots=True)
class Page:
    """The answer of a server."""

    url: str
    """After redirects."""
    content: bytes
    """Decompressed."""
    media_type: str
    charset: str
    """As the server names it; empty if it does not."""


async def look_up(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host, as the system resolves it."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [str(address[4][0]) for address in found]


class PageFetcher:
    """Fetches pages under the guard."""

    def __init__(
        self,
        *,
        ports: Collection[int] = PORTS,
        is_allowed: Callable[[str], bool] = is_public,
        resolve: Callable[[str, int], Awaitable[Sequence[str]]] = look_up,
        limit_s: float = LIMIT_S,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """Create a fetcher.

        Args:
            ports: the ports that it connects to.
            is_allowed: whether it may connect to an address.
            resolve: returns the addresses of a host.
            limit_s: seconds for a page, with its redirects.
            max_bytes: of a page.
        """
        self._ports = frozenset(ports)
        self._is_allowed = is_allowed
        self._resolve = resolve
        self._limit_s = limit_s
        self._max_bytes = max_bytes

    async def fetch(self, url: str) -> Page:
        """Fetch the page at ``url``.

        Raises:
            AddressDenied: the URL, or one that it redirects to, is not one of the public web.
            PageUnavailable: there is no page, or it is too long, or it took too long.
        """
        try:
            async with asyncio.timeout(self._limit_s), self._create_session() as session:
                return await self._follow(session, self._parse(url))
        except TimeoutError:
            raise PageUnavailable(f"{_show(url)}: it was not complete within {self._limit_s:g} s") from None
        except zlib.error:
            raise PageUnavailable(f"{_show(url)}: its compression is damaged") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error, HermesError):
                raise
            raise PageUnavailable(f"{_show(url)}: {describe_client_error(error)}") from None

    def check(self, host: str, addresses: Sequence[str]) -> None:
        """Check that all addresses of a host may be connected to.

        Raises:
            AddressDenied: one may not: a public name with a private address is a sign of an attack.
        """
        if denied := next((each for each in addresses if not self._is_allowed(each)), None):
            raise AddressDenied(
                f"{_show(host)} is at {_show(denied)}, which is not an address of the public web",
                remedy="a tool that works in the target, such as terminal",
            )

    def _create_session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            resolver=_CheckedResolver(self, self._resolve),
            use_dns_cache=False,
            force_close=True,
            socket_factory=self._create_socket,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=_HEADERS,
            auto_decompress=False,
            trust_env=False,
        )

    def _create_socket(self, info: tuple[Any, ...]) -> socket.socket:
        """Create the socket of a connection: the last check, also of an address that no name was resolved for."""
        family, kind, protocol, _, address = info
        self.check(str(address[0]), [str(address[0])])
        return socket.socket(family, kind, protocol)

    def _parse(self, text: str) -> URL:
        url = URL(text)
        if url.scheme not in ("http", "https") or not url.host:
            raise AddressDenied(f"{_show(text)} is not an address of the web", remedy="http://… or https://…")
        if url.user is not None or url.password is not None:
            raise AddressDenied(f"{_show(text)} has a user or a password in it", remedy="the address without it")
        if url.port not in self._ports:
            raise AddressDenied(
                f"{_show(text)}: port {url.port} is not allowed",
                remedy="[agent.web] ports in hermes.toml, which a person sets",
            )
        return url.with_fragment(None)

    async def _follow(self, session: aiohttp.ClientSession, url: URL) -> Page:
        for _ in range(_REDIRECTS + 1):
            async with session.get(url, allow_redirects=False) as response:
                if response.status not in (301, 302, 303, 307, 308):
                    return await self._read(response)
                target = response.headers.get("Location", "")
            if not target:
                raise PageUnavailable(f"{_show(str(url))}: it redirects to no address")
            url = self._parse(str(url.join(URL(target))))
        raise PageUnavailable(f"{_show(str(url))}: more than {_REDIRECTS} redirects")

    async def _read(self, response: aiohttp.ClientResponse) -> Page:
        shown = _show(str(response.url))
        if not response.ok:
            raise PageUnavailable(f"{shown}: the server answered {response.status}")
        encoding = response.headers.get("Content-Encoding", "").strip().lower()
        decoder = _Decoder(encoding, shown)
        content, received = bytearray(), 0
        async for piece in response.content.iter_chunked(_PIECE):
            received += len(piece)
            content += decoder.decode(piece, self._max_bytes + 1 - len(content))
            if max(received, len(content)) > self._max_bytes:
                raise PageUnavailable(f"{shown}: it is longer than {self._max_bytes:,} bytes")
        if not decoder.is_complete:
            raise PageUnavailable(f"{shown}: its compression is damaged")
        return Page(str(response.url), bytes(content), response.content_type, response.charset or "")


class _CheckedResolver(AbstractResolver):
    """Resolves a name, and refuses it if one of its addresses may not be connected to."""

    def __init__(self, fetcher: PageFetcher, resolve: Callable[[str, int], Awaitable[Sequence[str]]]) -> None:
        self._fetcher = fetcher
        self._look_up = resolve

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the checked addresses of a host, each as the address to connect to."""
        addresses = await self._look_up(host, port)
        self._fetcher.check(host, addresses)
        found: list[ResolveResult] = []
        for each in addresses:
            own = socket.AF_INET6 if ":" in each else socket.AF_INET
            if family in (own, socket.AF_UNSPEC):
                flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
                found.append({"hostname": host, "host": each, "port": port, "family": own, "proto": 0, "flags": flags})
        return found

    async def close(self) -> None:
        """Release nothing."""


class _Decoder:
    """Decompresses a body, with a bound on what it returns."""

    def __init__(self, encoding: str, shown: str) -> None:
        if encoding not in ("", "identity", *_WBITS):
            raise PageUnavailable(f"{shown}: its content encoding {_show(encoding)} was not asked for")
        self._wbits = _WBITS.get(encoding)
        self._inflate = None if self._wbits is None else zlib.decompressobj(self._wbits)
        self._begun = False

    def decode(self, piece: bytes, most: int) -> bytes:
        """Return the next bytes, ``most`` of them at most; the rest of a longer piece is dropped."""
        if self._inflate is None:
            return piece
        if not self._begun:
            self._begun = True
            if self._wbits == 15 and piece[:1] and piece[0] & 0x0F != 8:  # some servers send no header of zlib
                self._inflate = zlib.decompressobj(-15)
        return self._inflate.decompress(piece, max(most, 1))

    @property
    def is_complete(self) -> bool:
        """Whether the compressed data has its end."""
        return self._inflate is None or not self._begun or self._inflate.eof


def describe_client_error(error: Exception) -> str:
    """Return why a request failed, in one line."""
    if isinstance(error, aiohttp.ClientConnectorError):
        number, text = error.os_error.errno or 0, error.os_error.strerror or str(error.os_error)
        return f"{error.host}:{error.port}: {os.strerror(number) if number > 0 else text}"
    return flatten(str(error), _SHOWN) or type(error).__name__


def _show(text: str) -> str:
    return flatten(text, _SHOWN)
