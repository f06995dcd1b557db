"""A server with the routes of Honcho that its client uses here, over real sockets, faults included."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Literal, Self

from aiohttp import web

if TYPE_CHECKING:
    from types import TracebackType

Fault = Literal["", "silent", "dripping", "other JSON", "no JSON", "refusing", "failing"]
_AT = "2026-11-01T00:00:00Z"


class HonchoServer:
    """``async with HonchoServer(key) as rig:`` answers at ``rig.url`` from what it was sent.

    An answer quotes the latest message of the peer; the messages are its conclusions.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.fault: Fault = ""
        self.requests: list[tuple[str, dict[str, Any]]] = []
        """The path and the body of each."""
        self.messages: list[dict[str, Any]] = []
        self.peers: list[str] = []
        self.url = ""
        app = web.Application(middlewares=[self._handle])
        space = "/v3/workspaces/{workspace}"
        app.router.add_post("/v3/workspaces", self._workspace)
        app.router.add_post(f"{space}/peers", self._peer)
        app.router.add_post(f"{space}/peers/{{peer}}/chat", self._chat)
        app.router.add_post(f"{space}/sessions", self._session)
        app.router.add_post(f"{space}/sessions/{{session}}/messages", self._messages)
        app.router.add_post(f"{space}/conclusions/list", self._conclusions)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    @web.middleware
    async def _handle(self, request: web.Request, handler: Any) -> web.StreamResponse:
        body = await request.read()
        self.requests.append((request.path, json.loads(body) if body else {}))
        if self.fault == "refusing" or request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"detail": f"bad key {request.headers.get('Authorization')}"}, status=401)
        if self.fault == "failing":
            return web.json_response({"detail": "out of order"}, status=503)
        if self.fault == "silent":
            await asyncio.sleep(600)
        if self.fault == "dripping":
            return await self._drip(request)
        if self.fault == "other JSON":
            return web.json_response(["nothing", {"of": "use"}])
        if self.fault == "no JSON":
            return web.Response(text="<html>hello</html>", content_type="text/html")
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _drip(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.02)

    async def _workspace(self, _: web.Request) -> web.Response:
        return web.json_response({"id": self.requests[-1][1]["id"], "created_at": _AT})

    async def _peer(self, request: web.Request) -> web.Response:
        peer = self.requests[-1][1]["id"]
        self.peers.append(peer)
        return web.json_response({"id": peer, "workspace_id": request.match_info["workspace"], "created_at": _AT})

    async def _session(self, request: web.Request) -> web.Response:
        session = self.requests[-1][1]["id"]
        space = request.match_info["workspace"]
        return web.json_response({"id": session, "is_active": True, "workspace_id": space, "created_at": _AT})

    async def _messages(self, request: web.Request) -> web.Response:
        new = [
            {
                "id": f"m{len(self.messages) + number}",
                "session_id": request.match_info["session"],
                "workspace_id": request.match_info["workspace"],
                "token_count": 1,
                **each,
            }
            for number, each in enumerate(self.requests[-1][1]["messages"])
        ]
        self.messages += new
        return web.json_response(new, status=201)

    def _of_peer(self, peer: str) -> list[dict[str, Any]]:
        return [
            {
                "id": each["id"],
                "content": each["content"],
                "level": "explicit",
                "created_at": each["created_at"],
                "session_id": each["session_id"],
                "observer_id": peer,
                "observed_id": peer,
            }
            for each in self.messages
            if each["peer_id"] == peer
        ]

    async def _chat(self, request: web.Request) -> web.Response:
        known = self._of_peer(request.match_info["peer"])
        content = f"They said: {known[-1]['content']}" if known else None
        return web.json_response({"content": content, "evidence": {"conclusions": known[-1:]}})

    async def _conclusions(self, _: web.Request) -> web.Response:
        items = self._of_peer(self.requests[-1][1]["filters"]["observed_id"])
        return web.json_response({"items": items, "total": len(items), "page": 1, "size": 100, "pages": 1})
