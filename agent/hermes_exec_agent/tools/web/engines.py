"""Search the web, with public search engines or with a SearXNG of the person's choice."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.errors import HermesError
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from collections.abc import Iterable

PUBLIC = "ddgs"
"""The setting for public search engines, through the library of that name."""
LIMIT_S = 20.0
_EACH_S = 8
_MOST = 4_000_000
_LONGEST_URL = 2000


class SearchFailed(HermesError):
    """A search returned no answer."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One result; its texts are untrusted."""

    url: str
    title: str
    snippet: str


async def search(query: str, most: int, engine: str, *, limit_s: float = LIMIT_S) -> list[Hit]:
    """Return the results of a search, best first.

    Args:
        query: the words.
        most: the most results.
        engine: `PUBLIC`, or the URL of a SearXNG.
        limit_s: seconds until it is given up.

    Raises:
        SearchFailed: the engine cannot be reached, or its answer is not one.
    """
    try:
        async with asyncio.timeout(limit_s):
            if engine == PUBLIC:
                return _select(await asyncio.to_thread(_ask_public, query, most), "href", "body", most)
            return _select(await _ask_searxng(query, engine), "url", "content", most)
    except TimeoutError:
        raise SearchFailed(f"the search had no answer within {limit_s:g} s", remedy="once more, or later") from None


def _select(rows: Iterable[Any], address: str, text: str, most: int) -> list[Hit]:
    """Return the rows that are results, each address once."""
    hits: dict[str, Hit] = {}
    for row in rows:
        if not isinstance(row, dict):
            continue
        fields = cast("dict[str, Any]", row)
        url = str(fields.get(address) or "")
        if _is_address(url) and url not in hits and len(hits) < most:
            hits[url] = Hit(url, str(fields.get("title") or ""), str(fields.get(text) or ""))
    return list(hits.values())


def _is_address(url: str) -> bool:
    is_web = url.startswith(("http://", "https://")) and len(url) <= _LONGEST_URL
    return is_web and url.isprintable() and not any(each in url for each in " \"'<>`\\")


def _ask_public(query: str, most: int) -> list[dict[str, Any]]:
    import ddgs
    from ddgs.exceptions import DDGSException

    try:
        engines = cast("Any", ddgs).DDGS(timeout=_EACH_S)
        return cast("list[dict[str, Any]]", engines.text(query, max_results=most))
    except DDGSException as error:
        if "No results" in str(error):
            return []
        raise SearchFailed(
            f"the public search engines gave no answer: {flatten(str(error), 200)}",
            remedy="once more later; or a SearXNG, [agent.web] search in hermes.toml, which a person sets",
        ) from None


async def _ask_searxng(query: str, base_url: str) -> list[Any]:
    """Ask a SearXNG, which may be in a private network: its address is the person's."""
    import aiohttp

    from hermes_exec_agent.tools.web.fetch import describe_client_error

    url = f"{base_url.rstrip('/')}/search"
    try:
        async with (
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.get(url, params={"q": query, "format": "json"}, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise _explain_status(url, response.status)
            content = bytearray()
            async for piece in response.content.iter_chunked(1 << 16):
                content += piece
                if len(content) > _MOST:
                    raise SearchFailed(f"{url}: its answer is longer than {_MOST:,} bytes")
    except (aiohttp.ClientError, OSError) as error:
        if isinstance(error, TimeoutError):
            raise
        raise SearchFailed(f"{url}: {describe_client_error(error)}") from None
    return _parse(bytes(content), url)


def _explain_status(url: str, status: int) -> SearchFailed:
    remedy = "json under search.formats in its settings.yml" if status == 403 else "the address of a SearXNG"
    return SearchFailed(f"{url}: the server answered {status}", remedy=f"{remedy}; [agent.web] search in hermes.toml")


def _parse(content: bytes, url: str) -> list[Any]:
    try:
        results: Any = json.loads(content)["results"]
    except (ValueError, KeyError, TypeError, RecursionError):
        results = None
    if not isinstance(results, list):
        raise SearchFailed(f"{url}: its answer is not the JSON of a SearXNG")
    return results  # pyright: ignore[reportUnknownVariableType]  JSON
