"""Obstacles to a connection to Modal, checked with the address, the proxy and the certificates of the SDK."""

from __future__ import annotations

import importlib.util
import ssl
from typing import Any

from hermes_exec_backends._shared.connectivity import Endpoint, Obstacle, find_obstacle

_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
"""The client's first bytes in HTTP/2: the preface and empty settings, which a server answers with its own."""
_UNTRUSTED = (
    'cat CA.pem >> "$(python -m certifi)", where CA.pem is the certificate of the authority that signed it, often a '
    "proxy's; the SDK does not read SSL_CERT_FILE"
)
_NO_SOCKS = "pip install python-socks, or NO_PROXY={host} where there is a way without the proxy"


def servers() -> list[str]:
    """Return the addresses that the SDK connects to; any one of them is enough."""
    from modal.config import config

    settings: Any = config
    return [each.strip() for each in str(settings.get("server_url")).split(",") if each.strip()]


async def look() -> Obstacle | None:
    """Return the obstacle between the SDK and Modal; None where one of its addresses answers."""
    found: list[Obstacle] = []
    for url in servers():
        obstacle = await _look_at(url)
        if obstacle is None:
            return None
        found.append(obstacle)
    return found[0] if found else None


async def _look_at(url: str) -> Obstacle | None:
    from modal.config import config

    settings: Any = config
    if url.startswith("unix:"):
        return None
    uses_proxy = not settings.get("disable_api_proxy")
    service = Endpoint(url, _HELLO, _UNTRUSTED, ("h2",), _trust, uses_proxy=uses_proxy)
    obstacle = await find_obstacle(service)
    variable, proxy = service.proxy()
    if obstacle is None and proxy and importlib.util.find_spec("python_socks") is None:
        why = f"{variable} names a proxy, which the SDK uses only with the package 'python-socks'"
        return Obstacle(why, _NO_SOCKS.format(host=service.parts.hostname))
    return obstacle


def _trust() -> ssl.SSLContext:
    """Return the trust store of the SDK: certifi's authorities where it is installed."""
    try:
        import certifi
    except ImportError:
        return ssl.create_default_context()
    return ssl.create_default_context(cafile=certifi.where())
