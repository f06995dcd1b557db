"""Access to the web view: one-time links, session cookies, and refusals of requests that other sites cause."""

from __future__ import annotations

import hmac
import secrets
import time
from collections import deque
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiohttp import web

from hermes_exec_agent.frontends.http.guard import is_equal_constant_time, parse_host

if TYPE_CHECKING:
    from collections.abc import Callable

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


class Access:
    """Decides which requests are answered."""

    def __init__(
        self,
        key: Secret,
        hosts: frozenset[str],
        *,
        token: Secret | None = None,
        secure: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create the access of one server.

        Args:
            key: signs sessions, which so outlast a restart.
            hosts: the names of this server; requests for any other are refused.
            token: opens a session any number of times; None if only links do.
            secure: whether browsers reach the server over HTTPS alone.
            clock: returns the time.
        """
        self._key = key
        self._hosts = hosts
        self.cookie = "__Host-hermes-web" if secure else "hermes-web"
        """The name of the cookie."""
        self._token = token
        self._secure = secure
        self._clock = clock
        self._links: dict[str, float] = {}
        self._failures: deque[float] = deque(maxlen=_MOST_FAILURES)

    def use_port(self, port: int) -> None:
        """Name the cookie after the port: browsers send the cookies of one host to all its ports."""
        if not self._secure:
            self.cookie = f"hermes-web-{port}"

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
        if parse_host(request.headers.get("Host", "")) not in self._hosts:
            return refuse(421, "this server has another host name")
        is_socket = request.headers.get("Upgrade") is not None
        is_write = request.method not in {"GET", "HEAD"}
        if not self._has_own_origin(request, required=is_write or is_socket):
            return refuse(403, "requests from pages of other sites are refused")
        if is_write and request.headers.get(WRITE_HEADER) != "1":
            return refuse(403, f"the header {WRITE_HEADER} is missing")
        if is_write and request.content_type != "application/json":
            return refuse(415, "the body must be application/json")
        if not public and not self.has_session(request):
            return refuse(401, "there is no session; open a new link")
        return None

    def _has_own_origin(self, request: web.Request, *, required: bool) -> bool:
        origin = request.headers.get("Origin")
        if origin is None:
            return not required
        try:
            found = urlsplit(origin)
        except ValueError:
            return False
        schemes = {"https"} if self._secure else {"http", "https"}
        return found.scheme in schemes and found.netloc == request.headers.get("Host", "")

    def has_session(self, request: web.Request) -> bool:
        """Return whether a request has the cookie of a session."""
        expiry, _, rest = request.cookies.get(self.cookie, "").partition(".")
        nonce, _, mac = rest.partition(".")
        if not (expiry.isascii() and expiry.isdecimal() and len(expiry) <= 12) or int(expiry) < self._clock():
            return False
        return is_equal_constant_time(mac, self._sign(expiry, nonce))

    def open_session(self, secret: str, response: web.Response) -> bool:
        """Set the cookie of a new session in ``response`` if ``secret`` is that of a link, or the token.

        The token is not compared while sign-ins are locked; a link is too long to be guessed.
        """
        now = self._clock()
        if self._links.pop(_digest(secret), 0.0) < now and not self._is_token(secret):
            self._failures.append(now)
            return False
        ends, nonce = str(int(now) + SESSION_S), secrets.token_hex(16)
        value = f"{ends}.{nonce}.{self._sign(ends, nonce)}"
        response.set_cookie(
            self.cookie, value, max_age=SESSION_S, path="/", httponly=True, samesite="Strict", secure=self._secure
        )
        return True

    def _is_token(self, secret: str) -> bool:
        return self._token is not None and not self.is_locked and is_equal_constant_time(secret, self._token.reveal())

    @property
    def is_locked(self) -> bool:
        """Whether too many wrong secrets were sent within a minute."""
        full = len(self._failures) == _MOST_FAILURES
        return full and self._clock() - self._failures[0] < _FAILURES_S

    def close_session(self, response: web.Response) -> None:
        """Remove the cookie of the session."""
        response.del_cookie(self.cookie, path="/", httponly=True, samesite="Strict", secure=self._secure)

    def _sign(self, expiry: str, nonce: str) -> str:
        message = f"{self.cookie}.{expiry}.{nonce}".encode("utf-8", "surrogatepass")
        return hmac.new(self._key.reveal().encode(), message, sha256).hexdigest()


def refuse(status: int, why: str) -> web.Response:
    """Return a response with the reason of a refusal."""
    return web.json_response({"error": why}, status=status)


def _digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
