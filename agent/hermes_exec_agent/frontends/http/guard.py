"""Who may ask: a browser that was lured here may not, nor may anybody without the token."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from hermes_exec_agent.frontends.http.protocol import make_error_response

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import web

    from hermes_exec.config.secrets import Secret

PUBLIC_PATHS = frozenset({"/health", "/ready"})
"""What a container's engine asks, which has no token; they tell nothing else."""
SHORTEST_TOKEN = 16


@dataclass(frozen=True, slots=True)
class RequestGuard:
    """Looks at each request before anything else does."""

    token: Secret | None
    """None is for a unix socket alone, whose peers are this user's: `listen` takes no address without a token."""
    hosts: frozenset[str]
    """The names by which this server may be called; empty is any."""

    def check(self, request: web.Request) -> web.Response | None:
        """Why not, or None."""
        # A page whose name was made to mean 127.0.0.1 sends its own name as the host (DNS rebinding).
        if self.hosts and parse_host(request.headers.get("Host", "")) not in self.hosts:
            return make_error_response(421, "this server is not called that", code="wrong_host")
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("Host", ""):
            return make_error_response(403, "pages of other sites may not ask", code="wrong_origin")
        if request.path in PUBLIC_PATHS or (self.token is None and _over_unix_socket(request)):
            return None
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if (
            self.token is not None
            and scheme.lower() == "bearer"
            and is_equal_constant_time(given.strip(), self.token.reveal())
        ):
            return None
        denied = make_error_response(401, "the token is missing or wrong", code="invalid_api_key")
        denied.headers["WWW-Authenticate"] = "Bearer"
        return denied


def _over_unix_socket(request: web.Request) -> bool:
    made = request.get_extra_info("socket")
    return made is not None and made.family == socket.AF_UNIX


def is_equal_constant_time(given: str, wanted: str) -> bool:
    """Whether two texts are equal, in a time that tells nothing about either."""
    digests = [sha256(text.encode("utf-8", "surrogatepass")).digest() for text in (given, wanted)]
    return hmac.compare_digest(*digests)


def parse_host(header: str) -> str:
    """The name of a ``Host`` header, without its port."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches it."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def list_host_names(address: str, more: Iterable[str] = ()) -> frozenset[str]:
    """By which names a server at a loopback address may be called."""
    return frozenset({"localhost", "127.0.0.1", "::1", address.lower(), *(each.lower() for each in more)})
