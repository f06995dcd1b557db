"""The HTTP listener of the gateway, for platforms that deliver messages by webhook, and for metrics."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import logging
import os
import re
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import ConfigError, HermesError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from aiohttp import web

    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.frontends.gateway.adapter import Adapter
    from hermes_exec_agent.frontends.gateway.records import Measures

_log = logging.getLogger("hermes_exec.gateway")
_http_log = logging.getLogger("hermes_exec.gateway.http")
_http_log.setLevel(logging.CRITICAL)  # its lines have parts of malformed requests, with secrets, and no limit
LARGEST_BODY = 1 << 20
LIMIT_S = 10.0
"""Seconds in which a request has to be read and answered."""
_MOST_REQUESTS = 64
"""Requests that are worked on at one time."""
_MOST_CONNECTIONS = 256
_METRICS = "/metrics"
_LABELS = ("platform", "account")
_STATES = ("connected", "connecting", "down", "stopped")
_PIECES = ("pending", "sending", "sent", "failed", "unknown")
_FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP")


@runtime_checkable
class WebhookReceiver(Protocol):
    """An adapter that takes requests of its platform."""

    @property
    def path(self) -> str:
        """The path of its requests, such as ``/slack``; empty if this account takes none."""
        ...

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request of at most 1 MiB within ten seconds.

        It compares the signature in constant time before it parses anything of the body, and answers 200 only after
        ``accept`` of `Adapter.receive` has returned. While `Adapter.receive` does not run, it answers 503.
        """
        ...


class Listener:
    """Listens on one address for all accounts."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        has_metrics: bool = False,
        metrics_token: Secret | None = None,
        limit_s: float = LIMIT_S,
    ) -> None:
        """Create a listener.

        Args:
            host: the address to listen on.
            port: 0 for a free one.
            has_metrics: whether ``/metrics`` is answered.
            metrics_token: what its requests have to present; without one, only this machine gets an answer.
            limit_s: the time for a request.
        """
        self._address = host, port
        self._has_metrics = has_metrics
        self._metrics_token = metrics_token
        self._limit_s = limit_s
        self._busy: set[object] = set()
        """The connections with a request that is worked on."""
        self.url = ""
        """Its own address, while it listens."""

    @contextlib.asynccontextmanager
    async def serve(self, adapters: Sequence[Adapter], measure: Callable[[], Measures]) -> AsyncGenerator[None]:
        """Answer requests.

        Raises:
            ConfigError: the address is not available, or two accounts have one path.
        """
        from aiohttp import web

        app = web.Application(client_max_size=LARGEST_BODY)
        receivers = [each for each in adapters if isinstance(each, WebhookReceiver) and each.path]
        paths = [*(each.path for each in receivers), *([_METRICS] if self._has_metrics else [])]
        if len(set(paths)) != len(paths):
            raise ConfigError("two accounts, or an account and the metrics, take requests at one path")
        for receiver in receivers:
            app.router.add_route("*", receiver.path, self._limit(receiver.handle))
        if self._has_metrics:
            app.router.add_get(_METRICS, self._limit(self._make_metrics(measure)))
        runner = web.AppRunner(
            app,
            access_log=None,
            logger=_http_log,
            handler_cancellation=True,
            auto_decompress=False,
            shutdown_timeout=1.0,
        )
        await runner.setup()
        server = cast("web.Server", runner.server)  # which setup has created
        try:
            listening = await self._listen(server)
            closing = asyncio.create_task(self._close_idle(server))
            try:
                host, port = listening.sockets[0].getsockname()[:2]
                self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
                _log.info("listening on %s", self.url)
                yield
            finally:
                self.url = ""
                closing.cancel()
                listening.close()
        finally:
            await runner.cleanup()

    async def _listen(self, server: web.Server) -> asyncio.Server:
        """Take connections; refuse those beyond the limit, so that they leave descriptors for the gateway's own.

        Raises:
            ConfigError: the address is not available.
        """

        def create() -> asyncio.BaseProtocol:
            return _Refusal() if len(server.connections) >= _MOST_CONNECTIONS else server()

        try:
            return await asyncio.get_running_loop().create_server(create, *self._address, reuse_address=True)
        except OSError as error:
            where = to_printable(f"{self._address[0]}:{self._address[1]}")
            raise ConfigError(
                f"cannot listen on {where}: {os.strerror(error.errno or 0)}",
                remedy='[gateway] listen = "127.0.0.1:PORT"',
            ) from error

    async def _close_idle(self, server: web.Server) -> None:
        """Close connections without a request that is worked on, also those whose headers come too slowly."""
        seen: dict[object, float] = {}
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(self._limit_s / 4, 1.0))
            idle = [each for each in server.connections if each not in self._busy]
            seen = {each: seen.get(each, loop.time()) for each in idle}
            for connection in idle:
                if loop.time() - seen[connection] > self._limit_s:
                    connection.force_close()

    def _limit(
        self, handle: Callable[[web.Request], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Limit the time and the number of requests; an error of a handler has no text for the client."""
        from aiohttp import web

        async def answer(request: web.Request) -> web.Response:
            if len(self._busy) >= _MOST_REQUESTS:
                return web.Response(status=503)
            self._busy.add(request.protocol)
            try:
                async with asyncio.timeout(self._limit_s):
                    return await handle(request)
            except web.HTTPException:
                raise
            except TimeoutError:
                return web.Response(status=503)
            except HermesError as error:
                _log.warning("a request was not accepted: %s", error)
                return web.Response(status=503)
            except Exception:  # noqa: BLE001  an adapter of another distribution may raise anything
                _log.exception("a request failed")
                return web.Response(status=500)
            finally:
                self._busy.discard(request.protocol)

        return answer

    def _make_metrics(self, measure: Callable[[], Measures]) -> Callable[[web.Request], Awaitable[web.Response]]:
        from aiohttp import web

        async def answer(request: web.Request) -> web.Response:
            if not self._may_see_metrics(request):
                return web.Response(status=403)
            body = format_metrics(await asyncio.to_thread(measure))
            return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

        return answer

    def _may_see_metrics(self, request: web.Request) -> bool:
        """Whether a request has the token; without one, whether it is of this machine and no proxy passed it on."""
        if self._metrics_token is not None:
            presented = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
            return hmac.compare_digest(presented, f"Bearer {self._metrics_token.reveal()}".encode())
        if any(each in request.headers for each in _FORWARDED):
            return False
        return _is_loopback(request.remote or "") and _is_loopback(request.url.host or "")


def format_metrics(measures: Measures) -> bytes:
    """Return the metrics in the format of Prometheus: states, numbers and times, and no text of a person."""
    from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

    registry = CollectorRegistry()
    state = Gauge("hermes_exec_gateway_state", "1 for the state of an account", [*_LABELS, "state"], registry=registry)
    lag = Gauge("hermes_exec_gateway_lag_seconds", "Age of the oldest piece that waits", _LABELS, registry=registry)
    error = Gauge(
        "hermes_exec_gateway_last_error_age_seconds", "Age of the last error, if any", _LABELS, registry=registry
    )
    for each in measures.platforms:
        labels = (each["platform"], each["account"])
        for name in _STATES:
            state.labels(*labels, name).set(each["state"] == name)
        lag.labels(*labels).set(each["lag_s"])
        if each["last_error_s"] is not None:
            error.labels(*labels).set(each["last_error_s"])
    pieces = Gauge("hermes_exec_gateway_outbox", "Pieces of the outbox by state", ["state"], registry=registry)
    for name in _PIECES:
        pieces.labels(name).set(measures.states.get(name, 0))
    for name, text, counts in (
        ("received", "Messages that were accepted since the start", measures.received),
        ("sent", "Pieces that arrived since the start", measures.sent),
    ):
        counter = Counter(f"hermes_exec_gateway_{name}", text, _LABELS, registry=registry)
        for each in measures.platforms:
            key = (each["platform"], each["account"])
            counter.labels(*key).inc(counts.get(key, 0))
    return generate_latest(registry)


class _Refusal(asyncio.Protocol):
    """Ends a connection at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def check_path_name(name: str, where: str) -> None:
    """Check that the name of an account can be its path.

    Raises:
        ConfigError: it has other characters.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise ConfigError(f"{where}: the name has other characters than letters, digits, - and _")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
