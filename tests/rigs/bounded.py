"""Run a test's coroutine, and end it when it hangs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def within(limit_s: float) -> Callable[[Awaitable[Any]], Any]:
    """What runs an awaitable on a loop of its own for ``limit_s`` seconds at most, and gives its result."""

    def run(work: Awaitable[Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(limit_s):
                return await work

        return asyncio.run(bounded())

    return run
