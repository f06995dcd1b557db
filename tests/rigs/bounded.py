"""Run a test's coroutine, and end it when it hangs; wait for what no event tells of."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PATIENCE_S = 120.0
"""How long a test waits for what has to come. A loaded machine delays it; pytest ends a test after 150 s."""


def within(limit_s: float) -> Callable[[Awaitable[Any]], Any]:
    """What runs an awaitable on a loop of its own for ``limit_s`` seconds at most, and gives its result."""

    def run(work: Awaitable[Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(limit_s):
                return await work

        return asyncio.run(bounded())

    return run


async def until(holds: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    """Wait until something is so that no event tells."""
    give_up = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < give_up, "it did not come"
        await asyncio.sleep(0.01)


def wait_until(holds: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    """``until``, where no loop runs."""
    give_up = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < give_up, "it did not come"
        time.sleep(0.05)
