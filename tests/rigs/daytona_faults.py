"""What can go wrong between a client and Daytona, put into the rig's server by a test.

A fault is met by the next requests of one operation (the generated client's name for it): before the work, so that
nothing of it is done, or after it, so that all of it is. What is not an answer is a broken connection: ``fin`` is a
server that hangs up, ``rst`` one whose machine is gone.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from aiohttp import web

Drop = Literal["", "fin", "rst"]


@dataclass(slots=True)
class Fault:
    """What the next ``times`` requests of an operation meet."""

    operation: str
    when: Literal["before", "after"] = "before"
    status: int = 0
    message: str = ""
    code: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    delay_s: float = 0.0
    drop: Drop = ""
    act: Callable[[], Awaitable[None]] | None = None
    """What else happens at that moment, such as the sandbox's death."""
    instead: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
    """What answers it."""
    times: int = 1
    met: int = 0
    """How many requests have met it."""

    async def meet(self, request: web.Request) -> web.StreamResponse | None:
        """Let a request meet it; gives what answers it, if anything else than the work does."""
        self.met += 1
        if self.act is not None:
            await self.act()
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if self.drop:
            hang_up(request, self.drop)
            await asyncio.sleep(0)
            return web.Response(status=500)  # which nobody gets any more
        if self.instead is not None:
            return await self.instead(request)
        if self.status:
            return refusal(self.status, self.message or "injected", self.code, self.headers)
        return None


def refusal(status: int, message: str, code: str = "", headers: Mapping[str, str] | None = None) -> web.Response:
    """An error as Daytona's services tell it; assumed: the SDK's own reading of such bodies (_utils/errors.py)."""
    body = {"statusCode": status, "message": message, "error": message, "source": "DAYTONA_API"}
    if code:
        body |= {"code": code, "source": "DAYTONA_DAEMON"}
    return web.Response(
        status=status, text=json.dumps(body), content_type="application/json", headers=dict(headers or {})
    )


def hang_up(request: web.Request, how: Drop) -> None:
    """Break the connection that a request came on."""
    transport = request.transport
    if transport is None:
        return
    if how == "rst":
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    else:
        transport.close()
