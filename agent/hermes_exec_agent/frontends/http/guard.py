"""Authentication of requests, and protection against requests from web pages of other sites."""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from hermes_exec_agent.frontends.http.protocol import make_error_response

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import web

    from hermes_exec.config.secrets import Secret

PUBLIC_PATHS = frozenset({"/health", "/ready"})
"""Paths for the health checks of a container engine, which has no token; they reveal nothing else."""
_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class RequestGuard:
    """Checks each request before it is handled."""

    token: Secret | None
    """None only for a unix socket, whose peers belong to this user: `listen` refuses an address without a token."""
    hosts: frozenset[str]
    """The permitted host names of this server; empty permits any."""

    def check(self, request: web.Request) -> web.Response | None:
        """Return the response that refuses a request, or None."""
        # A page whose name resolves to 127.0.0.1 sends its own name as the host (DNS rebinding).
        if self.hosts and parse_host(request.headers.get("Host", "")) not in self.hosts:
            return make_error_response(421, "this server has another host name", code="wrong_host")
        origin = request.headers.get("Origin")
        if origin is not None and not is_own_origin(origin, request.headers.get("Host", ""), "http", "https"):
            return make_error_response(403, "requests from pages of other sites are refused", code="wrong_origin")
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
    connected = request.get_extra_info("socket")
    return connected is not None and connected.family == socket.AF_UNIX


def is_equal_constant_time(given: str, expected: str) -> bool:
    """Compare two texts in constant time."""
    digests = [sha256(text.encode("utf-8", "surrogatepass")).digest() for text in (given, expected)]
    return hmac.compare_digest(*digests)


def parse_host(header: str) -> str:
    """Return the host name of a ``Host`` header, without its port; empty if it has anything else."""
    found = _HOST.fullmatch(header)
    return found[1].strip("[]").lower() if found is not None else ""


def is_own_origin(origin: str, host: str, *schemes: str) -> bool:
    """Whether a browser's ``Origin`` is the page at this ``Host``, by one of these schemes."""
    return origin.lower() in {f"{scheme}://{host}".lower() for scheme in schemes}


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach the address."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def list_host_names(address: str, more: Iterable[str] = ()) -> frozenset[str]:
    """Return the permitted host names of a server at a loopback address."""
    return frozenset({"localhost", "127.0.0.1", "::1", address.lower(), *(each.lower() for each in more)})
