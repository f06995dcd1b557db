"""Read a file of a message from its platform, over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import aiohttp

from hermes_exec_agent.frontends.gateway.adapter import PlatformDown, Rejected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CHUNK = 1 << 16


def check_address(address: str, hosts: Sequence[str], base_url: str) -> None:
    """Check that a request with the account's token may go to an address, which came in a message.

    Raises:
        Rejected: it is neither HTTPS to one of ``hosts``, or below one, nor of the server of the API.
    """
    try:
        parts, base = urlsplit(address), urlsplit(base_url)
        host = (parts.hostname or "").lower()
        is_own = (parts.scheme, parts.netloc) == (base.scheme, base.netloc)
    except ValueError:
        raise Rejected("it has no valid address") from None
    if not is_own and (parts.scheme != "https" or not any(host == each or host.endswith(f".{each}") for each in hosts)):
        raise Rejected("it is on a server that the account's token is not sent to")


async def download(address: str, limit: int, *, headers: Mapping[str, str], limit_s: float) -> bytes:
    """Return the content at an address, which is at most ``limit`` bytes long. Redirects are not followed.

    Raises:
        PlatformDown: it cannot be read now.
        Rejected: it is longer, or the platform does not give it.
    """
    content = bytearray()
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=limit_s)) as session,
            session.get(address, headers=headers, allow_redirects=False) as response,
        ):
            if response.status >= 500 or response.status == 429:
                raise PlatformDown(f"the platform answers a request for a file with status {response.status}")
            if response.status != 200:
                raise Rejected(f"the platform does not hand it out (status {response.status})")
            async for chunk in response.content.iter_chunked(_CHUNK):
                content += chunk
                if len(content) > limit:
                    raise Rejected(f"it has more than {limit:,} bytes, which are allowed")
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise PlatformDown(f"a file cannot be read ({type(error).__name__})") from error
    return bytes(content)
