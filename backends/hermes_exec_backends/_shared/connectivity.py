"""Diagnosis of why a vendor's service cannot be reached: name, proxy, port, certificate, or no response.

An SDK retries for a minute, and then reports no cause. A separate connection, over the same proxy and with the same
trusted certificates, finds it within seconds. It sends no key.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import SplitResult, urlsplit

from hermes_exec.errors import PlaceUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
LIMIT_S = 4.0
"""The time limit of the whole diagnosis."""
SLOW_S = 2.0
"""The time without a response after which a request is diagnosed."""


class Unreached(PlaceUnavailable):
    """The error for a connection that could not be opened, so nothing can have been created."""

    def __init__(self, vendor: str, obstacle: Obstacle) -> None:
        super().__init__(f"{vendor}: {obstacle.what}; nothing was created", remedy=obstacle.remedy)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The cause of a failed connection, and a remedy."""

    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address to diagnose."""

    url: str
    hello: bytes
    """A request without a key, to which the service answers at once."""
    untrusted: str
    """The remedy if its certificate is not trusted."""
    protocols: tuple[str, ...] = ("http/1.1",)
    """The protocols for ALPN."""
    trust: Callable[[], ssl.SSLContext] = ssl.create_default_context
    uses_proxy: bool = True

    @property
    def parts(self) -> SplitResult:
        """Return the address, split."""
        return urlsplit(self.url)

    def proxy(self) -> tuple[str, str]:
        """Return the variable that names a proxy for the address, and the proxy's address; empty without a proxy."""
        host = self.parts.hostname or ""
        if not self.uses_proxy or urllib.request.proxy_bypass(host):
            return "", ""
        proxies = urllib.request.getproxies()
        kind = next((kind for kind in (self.parts.scheme, "all") if proxies.get(kind)), "")
        return (f"{kind.upper()}_PROXY", proxies[kind]) if kind else ("", "")


async def find_obstacle(service: Endpoint) -> Obstacle | None:
    """Connect to a service as its SDK does; return the obstacle, or None where the service answers."""
    look = _Look(service)
    try:
        async with asyncio.timeout(LIMIT_S):
            await look.go()
    except (OSError, EOFError) as error:  # TimeoutError is an OSError
        return look.explain(error)
    except ValueError as error:
        return Obstacle(f"{service.url} is not an address: {error}", "correct it")
    return None


async def explain_delay(
    work: Awaitable[T], look: Callable[[], Awaitable[Obstacle | None]], fail: Callable[[Obstacle], Exception]
) -> T:
    """Wait for a request of an SDK; if it takes long, ``look`` for the obstacle.

    An obstacle ends the wait with the error that ``fail`` returns for it, without waiting for the SDK's own retries.
    """
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait([task], timeout=SLOW_S)
        obstacle = None if done else await look()
    except BaseException:
        abandon(task)
        raise
    if obstacle is not None and not task.done():
        abandon(task)
        raise fail(obstacle)
    return await task


def abandon(task: asyncio.Future[Any]) -> None:
    """Cancel a request without waiting for it: SDKs continue some requests for a minute after cancellation."""
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    task.cancel()


@dataclass(slots=True)
class _Look:
    service: Endpoint
    stage: Literal["connect", "proxy", "tls", "answer"] = "connect"
    variable: str = ""
    proxy: str = ""
    at: str = ""
    """The host and port of the present connection."""
    reply: str = ""
    writer: asyncio.StreamWriter | None = None

    async def go(self) -> None:
        try:
            await self._go()
        finally:
            if self.writer is not None:
                self.writer.transport.abort()

    async def _go(self) -> None:
        parts = self.service.parts
        secure = parts.scheme == "https"
        host, port = parts.hostname or "", parts.port or (443 if secure else 80)
        self.variable, self.proxy = self.service.proxy()
        way = urlsplit(self.proxy if "//" in self.proxy else f"http://{self.proxy}") if self.proxy else parts
        first = (way.hostname or "", way.port or (port if way is parts else 80))
        self.at = f"{first[0]}:{first[1]}"
        reader, writer = await asyncio.open_connection(*first)
        self.writer = writer
        if self.proxy:
            if way.scheme != "http" or not secure:
                return  # only an HTTP tunnel is tried
            self.stage = "proxy"
            await self._tunnel(reader, writer, f"{host}:{port}", way)
        self.at = f"{host}:{port}"
        if secure:
            self.stage = "tls"
            context = await asyncio.to_thread(self.service.trust)
            context.set_alpn_protocols(list(self.service.protocols))
            await writer.start_tls(context, server_hostname=host)
        self.stage = "answer"
        writer.write(self.service.hello)
        await reader.read(1)  # also its end: the SDK interprets that

    async def _tunnel(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str, way: SplitResult
    ) -> None:
        import base64
        from urllib.parse import unquote

        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if way.username:
            login = f"{unquote(way.username)}:{unquote(way.password or '')}"
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(login.encode()).decode()}")
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError as error:
            raise ConnectionError("it answers with something that is not HTTP") from error
        self.reply = head.partition(b"\r\n")[0].decode("latin-1")[:200]
        if self.reply.split(" ")[1:2] != ["200"]:
            raise ConnectionError(self.reply)

    def explain(self, error: Exception) -> Obstacle | None:
        if self.stage in {"connect", "proxy"} and self.proxy:
            where, remedy = f"the proxy {self.at} of {self.variable}", f"correct {self.variable}, or add to NO_PROXY"
        else:
            where, remedy = self.at, "check the network; where only a proxy leads out, set HTTPS_PROXY"
        if self.stage == "proxy" and self.reply:
            return Obstacle(f"{where} refuses: {self.reply}", remedy)
        if isinstance(error, ssl.SSLCertVerificationError):
            why = error.verify_message or error.reason
            return Obstacle(f"{where}: its certificate is not trusted: {why}", self.service.untrusted)
        if isinstance(error, ssl.SSLError):
            return Obstacle(f"{where}: no TLS connection: {error.reason or error}", remedy)
        if isinstance(error, socket.gaierror):
            return Obstacle(f"{where}: the name is not found: {error.strerror}", f"{remedy}; check DNS")
        if isinstance(error, TimeoutError):
            how = "no connection" if self.stage == "connect" else "it is connected and gives no answer"
            return Obstacle(f"{where}: {how} within {LIMIT_S:g} s", remedy)
        if self.stage == "answer":
            return None
        return Obstacle(f"{where}: {_words(error)}", remedy)


def _words(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "the connection is refused"
    if isinstance(error, EOFError):
        return "the connection is closed without an answer"
    return (error.strerror if isinstance(error, OSError) else "") or str(error)
