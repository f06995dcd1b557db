"""Which hosts were named, and which addresses a name may lead to."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

PORT = 443
"""Of a host that is named without one."""
_TRANSLATED = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")))
"""IPv6 that carries an IPv4 address, which somebody on the way may take out: it could be any."""


@dataclass(frozen=True, slots=True)
class Named:
    """A host and a port that can be reached."""

    host: str
    port: int

    @property
    def address(self) -> bool:
        """Whether it is an address and no name, so that somebody meant this very machine."""
        return _address(self.host) is not None


def named(words: Iterable[str]) -> frozenset[Named]:
    """The hosts that a policy lists: ``api.example.org`` or ``api.example.org:8443``.

    Raises:
        UsageError: a port is none.
    """
    found: set[Named] = set()
    for word in words:
        host, colon, port = word.partition(":")
        if colon and not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
            raise UsageError(f"{word!r} names no port", remedy="a number from 1 to 65535")
        found.add(Named(host, int(port) if colon else PORT))
    return frozenset(found)


def public(address: str) -> bool:
    """Whether an address is one of the Internet's: of no private network, of no machine's own, of no group."""
    found = _address(address)
    if found is None:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if any(found in network for network in _TRANSLATED):
            return False
        if found.ipv4_mapped is not None:
            found = found.ipv4_mapped
    return found.is_global and not found.is_multicast and not found.is_reserved


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
