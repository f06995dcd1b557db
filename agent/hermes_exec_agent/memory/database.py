"""The database of long-term memory: PostgreSQL with the extension pgvector, named by a URL that is a secret.

Only this process connects to it: no skill and no shell of an agent receives the URL, and no message contains it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Coroutine

VARIABLE = "MEMORY_DB_URL"
EXTENSION = "vector"
_PATIENCE_S = 5.0


async def examine(url: str) -> str:
    """Return why memory cannot be used, in one line; empty if it can, or if none is configured.

    Takes 5 s at most, changes nothing, and raises nothing but ``CancelledError``.
    """
    return await _wait_for(_find_problem(url)) if url else ""


async def _wait_for(look: Coroutine[None, None, str]) -> str:
    try:
        return await asyncio.wait_for(look, _PATIENCE_S)
    except TimeoutError:
        return f"memory: the database does not answer within {_PATIENCE_S:g} s"


async def _find_problem(url: str) -> str:
    try:
        import psycopg
    except ImportError:  # any client may read this message, so it names no folder of this machine
        return "memory: no client of PostgreSQL is installed. Try: install the extra 'memory' where the server runs"
    try:
        connection = await psycopg.AsyncConnection[tuple[str]].connect(url, autocommit=True)
    except psycopg.Error as error:
        # The error's text may quote the URL; its type and the server's code do not.
        return f"memory: the database cannot be reached ({describe_error(error)}). Try: check {VARIABLE} and the server"
    try:
        async with connection, connection.cursor() as cursor:
            await cursor.execute("SELECT extversion FROM pg_extension WHERE extname = %s", (EXTENSION,))
            found = await cursor.fetchone()
    except psycopg.Error as error:
        return f"memory: the database cannot be queried ({describe_error(error)})"
    return "" if found else f"memory: the database lacks {EXTENSION}. Try: CREATE EXTENSION {EXTENSION}"


def describe_error(error: Exception) -> str:
    """Return the type of an error of the client and the server's code, which contain no part of the URL."""
    code = getattr(error, "sqlstate", None)
    return f"{type(error).__name__} {code}" if code else type(error).__name__
