"""A server of pages, with redirects, bombs and slow bodies, and a SearXNG, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web

if TYPE_CHECKING:
    from types import TracebackType

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebPages:
    """``async with WebPages() as rig:`` answers at ``rig.url`` with the pages that were added."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.host = host
        self.port = 0
        self.requests: list[web.Request] = []
        self._pages: dict[str, Handler] = {}
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, 0)
        await site.start()
        self.port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def paths(self) -> list[str]:
        """The paths of all requests so far."""
        return [each.path for each in self.requests]

    def add(self, path: str, body: bytes | str, kind: str = "text/html; charset=utf-8", **headers: str) -> str:
        """Answer a path with a body, and return its URL."""
        data = body.encode() if isinstance(body, str) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}

        async def answer(_: web.Request) -> web.StreamResponse:
            return web.Response(body=data, headers={"Content-Type": kind, **named})

        return self.on(path, answer)

    def redirect(self, path: str, target: str, status: int = 302) -> str:
        """Redirect a path, and return its URL."""

        async def answer(_: web.Request) -> web.StreamResponse:
            return web.Response(status=status, headers={"Location": target})

        return self.on(path, answer)

    def bomb(self, path: str, megabytes: int) -> str:
        """Answer a path with so many compressed zeros, and return its URL."""
        return self.add(path, gzip.compress(bytes(megabytes << 20)), "text/plain", Content_Encoding="gzip")

    def endless(self, path: str, pause_s: float) -> str:
        """Answer a path with a body that does not end, and return its URL."""

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "text/plain"})
            await response.prepare(request)
            try:
                while True:
                    await response.write(b"x" * 4096)
                    await asyncio.sleep(pause_s)
            except ConnectionError:
                return response

        return self.on(path, answer)

    def searxng(self, results: Any, *, status: int = 200) -> str:
        """Answer searches in the JSON of SearXNG, and return the base URL."""

        async def answer(request: web.Request) -> web.StreamResponse:
            if request.query.get("format") != "json":
                return web.Response(text="<html>", content_type="text/html")
            body: dict[str, Any] = {
                "query": request.query["q"],
                "number_of_results": 0,
                "results": results,
                "answers": [],
            }
            return web.json_response(body, status=status)

        self.on("/search", answer)
        return self.url

    def on(self, path: str, handler: Handler) -> str:
        """Answer a path by a function, and return its URL."""
        self._pages[path] = handler
        return f"{self.url}{path}"

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        if (handler := self._pages.get(request.path)) is None:
            return web.Response(status=404)
        return await handler(request)
