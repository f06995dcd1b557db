"""What the rig's Daytona shows of the ports of its sandboxes."""

from __future__ import annotations

import asyncio
import http.client
from typing import TYPE_CHECKING

from aiohttp import web

from tests.rigs.daytona_faults import refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.rigs.daytona_server import Daytona


async def preview(service: Daytona, tokens: Mapping[tuple[str, int], str], request: web.Request) -> web.StreamResponse:
    """What listens on a port of a sandbox; assumed: the token is a header, and a wrong one is a 401 ([D] docs)."""
    _, _, sandbox_id, port, *rest = request.path.split("/")
    sandbox = service.sandboxes.get(sandbox_id)
    if request.headers.get("x-daytona-preview-token") != tokens.get((sandbox_id, int(port)), ""):
        return refusal(401, "unauthorized")
    if sandbox is None or sandbox.cell is None:
        return refusal(400, "bad request: failed to resolve container IP")
    connection = http.client.HTTPConnection("sandbox")
    connection.sock = await sandbox.cell.connect(int(port))
    connection.sock.setblocking(True)

    def ask() -> tuple[int, bytes]:
        connection.request(request.method, "/" + "/".join(rest))
        with connection.getresponse() as reply:
            return reply.status, reply.read()

    status, body = await asyncio.to_thread(ask)
    return web.Response(status=status, body=body)
