"""Access to the web view: one-time links, session cookies, and refusals of requests that other sites cause."""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import time
from collections import deque
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from aiohttp import web

from hermes_exec.terminal.encoding import parse_number
from hermes_exec_agent.frontends.http.guard import is_equal_constant_time, is_own_origin, parse_host

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hermes_exec.config.secrets import Secret

WRITE_HEADER = "X-Hermes-Web"
"""The header of requests that change something: a page of another site cannot send it."""
SESSION_S = 12 * 3600
"""The lifetime of a session."""
LINK_S = 600.0
"""The lifetime of a link that was not used."""
_MOST_LINKS = 16
_MOST_FAILURES = 10
_FAILURES_S = 60.0
SLOW_S = 1.0
"""Seconds that the comparison with the token waits after many wrong ones."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
        " require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), clipboard-read=()",
}
"""The headers of every response."""


@dataclass(frozen=True, slots=True)
class Session:
    """The session of a request."""

    id: str
    ends: float
    """Seconds since 1970."""


class Access:
    """Decides which requests are answered."""

    def __init__(
        self,
        key: Secret,
        hosts: frozenset[str],
        *,
        token: Secret | None = None,
        secure: bool = False,
        rights: str = "",
        ended: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create the access of one server.

        Args:
            key: signs sessions, which so outlast a restart.
            hosts: the names of this server; requests for any other are refused.
            token: opens a session any number of times; None if only links do. Another token ends all sessions.
            secure: whether browsers reach the server over HTTPS alone.
            rights: what a session may do; a server that allows something else accepts none of its sessions.
            ended: the file of the sessions that a person ended; None keeps them in memory.
            clock: returns the time.
        """
        scope = f"{rights}\0{_digest(token.reveal()) if token is not None else ''}"
        self._key = hmac.new(key.reveal().encode(), scope.encode(), sha256).digest()
        self._hosts = hosts
        self.cookie = "__Host-hermes-web" if secure else "hermes-web"
        """The name of the cookie."""
        self._token = token
        self._secure = secure
        self._clock = clock
        self._links: dict[str, float] = {}
        self._failures: deque[float] = deque(maxlen=_MOST_FAILURES)
        self._ended = EndedSessions(ended, clock)

    def use_port(self, port: int) -> None:
        """Name the cookie after the port: browsers send the cookies of one host to all its ports."""
        self.cookie = f"{self.cookie.rstrip('-0123456789')}-{port}"

    def create_link(self) -> str:
        """Return the secret of a new link, which opens one session within ten minutes."""
        while len(self._links) >= _MOST_LINKS:
            del self._links[next(iter(self._links))]
        link = secrets.token_urlsafe(32)
        self._links[_digest(link)] = self._clock() + LINK_S
        return link

    def find_refusal(self, request: web.Request, *, public: bool) -> web.Response | None:
        """Return the response that refuses a request, or None; ``public`` requests need no session."""
        # A page whose name resolves to this machine sends its own name as the host (DNS rebinding).
        host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
        if parse_host(host) not in self._hosts:
            return refuse(421, "this server has another host name")
        is_socket = request.headers.get("Upgrade") is not None
        is_write = request.method not in {"GET", "HEAD"}
        # A page at another port of this machine counts as the same site: its requests carry the cookie.
        is_foreign = not public and request.headers.get("Sec-Fetch-Site") in {"cross-site", "same-site"}
        has_wrong_origin = origin is not None and not is_own_origin(origin, host, "https" if self._secure else "http")
        if is_foreign or has_wrong_origin or (origin is None and (is_write or is_socket)):
            return refuse(403, "requests from pages of other sites are refused")
        if is_write and request.headers.get(WRITE_HEADER) != "1":
            return refuse(403, f"the header {WRITE_HEADER} is missing")
        if is_write and request.content_type != "application/json":
            return refuse(415, "the body must be application/json")
        if not public and self.find_session(request) is None:
            return refuse(401, "there is no session; open a new link")
        return None

    def find_session(self, request: web.Request) -> Session | None:
        """Return the session whose cookie a request has; None if it has none, or that one has ended."""
        expiry, _, rest = request.cookies.get(self.cookie, "").partition(".")
        nonce, _, mac = rest.partition(".")
        ends = parse_number(expiry, most=10**12 - 1)
        if ends is None or ends < self._clock():
            return None
        if not is_equal_constant_time(mac, self._sign(expiry, nonce)) or nonce in self._ended:
            return None
        return Session(nonce, ends)

    async def open_session(self, secret: str, response: web.Response) -> bool:
        """Set the cookie of a new session in ``response`` if ``secret`` is that of a link, or the token.

        After many wrong tokens each one is compared a moment later, so that they cannot be guessed. None is refused
        for that: else any stranger could lock the page.
        """
        if self._links.pop(_digest(secret), 0.0) < self._clock() and not await self._is_token(secret):
            return False
        ends, nonce = str(int(self._clock()) + SESSION_S), secrets.token_hex(16)
        value = f"{ends}.{nonce}.{self._sign(ends, nonce)}"
        response.set_cookie(
            self.cookie, value, max_age=SESSION_S, path="/", httponly=True, samesite="Strict", secure=self._secure
        )
        return True

    async def _is_token(self, secret: str) -> bool:
        if self._token is None:
            return False
        if len(self._failures) == _MOST_FAILURES and self._clock() - self._failures[0] < _FAILURES_S:
            await asyncio.sleep(SLOW_S)
        if is_equal_constant_time(secret, self._token.reveal()):
            return True
        self._failures.append(self._clock())
        return False

    def close_session(self, session: Session, response: web.Response) -> None:
        """End a session, also for copies of its cookie."""
        self._ended.add(session)
        response.del_cookie(self.cookie, path="/", httponly=True, samesite="Strict", secure=self._secure)

    def _sign(self, expiry: str, nonce: str) -> str:
        message = f"{self.cookie}.{expiry}.{nonce}".encode("utf-8", "surrogatepass")
        return hmac.new(self._key, message, sha256).hexdigest()


class EndedSessions:
    """The sessions that were ended before their time, also before a restart."""

    def __init__(self, path: Path | None, clock: Callable[[], float]) -> None:
        self._path = path
        self._ids: set[str] = set()
        if path is None or not path.exists():
            return
        now = clock()
        lines = [line.split() for line in path.read_text("ascii", "replace").splitlines()]
        kept = [line for line in lines if len(line) == 2 and line[0].isdecimal() and int(line[0]) >= now]
        self._ids = {id for _, id in kept}

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    def add(self, session: Session) -> None:
        """Add a session."""
        self._ids.add(session.id)
        if self._path is not None:
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                os.write(handle, f"{int(session.ends)} {session.id}\n".encode("ascii"))
            finally:
                os.close(handle)


def refuse(status: int, why: str) -> web.Response:
    """Return a response with the reason of a refusal."""
    return web.json_response({"error": why}, status=status)


def _digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
