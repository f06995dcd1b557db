"""The HTTP listener of the gateway, for platforms that deliver messages by webhook, and for metrics."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import logging
import os
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import ConfigError, HermesError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from aiohttp import web

    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.frontends.gateway.adapter import Adapter
    from hermes_exec_agent.frontends.gateway.records import Measures

_log = logging.getLogger("hermes_exec.gateway")
LARGEST_BODY = 1 << 20
LIMIT_S = 10.0
"""Seconds in which a request has to be read and answered."""
_MOST_REQUESTS = 64
"""Requests that are worked on at one time."""
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
        self._requests = 0
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
        paths = [each.path for each in receivers]
        if len(set(paths)) != len(paths):
            raise ConfigError("two accounts take requests at one path")
        for receiver in receivers:
            app.router.add_route("*", receiver.path, self._limit(receiver.handle))
        if self._has_metrics:
            app.router.add_get("/metrics", self._limit(self._make_metrics(measure)))
        runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, auto_decompress=False, shutdown_timeout=1.0
        )
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, *self._address).start()
            except OSError as error:
                where = to_printable(f"{self._address[0]}:{self._address[1]}")
                raise ConfigError(
                    f"cannot listen on {where}: {os.strerror(error.errno or 0)}",
                    remedy='[gateway] listen = "127.0.0.1:PORT"',
                ) from error
            host, port = runner.addresses[0][:2]
            self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
            _log.info("listening on %s", self.url)
            yield
        finally:
            self.url = ""
            await runner.cleanup()

    def _limit(
        self, handle: Callable[[web.Request], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Limit the time and the number of requests; an error of a handler has no text for the client."""
        from aiohttp import web

        async def answer(request: web.Request) -> web.Response:
            if self._requests >= _MOST_REQUESTS:
                return web.Response(status=503)
            self._requests += 1
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
                self._requests -= 1

        return answer

    def _make_metrics(self, measure: Callable[[], Measures]) -> Callable[[web.Request], Awaitable[web.Response]]:
        from aiohttp import web

        from hermes_exec_agent.frontends.gateway.metrics import format_metrics

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


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
