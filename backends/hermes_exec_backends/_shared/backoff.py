"""Waits between the attempts of an idempotent request to a vendor.

They grow exponentially with random jitter, so that many processes do not retry at once. A vendor's ``Retry-After`` is
obeyed; one that exceeds the remaining time ends the attempts.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
TRIES = 5
FIRST_S = 0.5
LONGEST_S = 8.0
"""The longest wait that the vendor did not ask for."""
TOTAL_S = 60.0
"""Seconds from the first attempt to the last."""


class Backoff:
    """The waits of one request."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._failed = 0

    async def wait(self, error: Exception) -> None:
        """Wait before the attempt after ``error``, whose ``wait_s`` is the wait that the vendor asks for.

        Raises:
            Exception: ``error``, if no attempt is left.
        """
        self._failed += 1
        longest = min(LONGEST_S, FIRST_S * 2 ** (self._failed - 1))
        asked_s: float = getattr(error, "wait_s", 0.0)
        pause_s = asked_s + random.uniform(longest / 2, longest)  # noqa: S311  it only spreads requests
        if self._failed >= TRIES or time.monotonic() - self._since + pause_s > TOTAL_S:
            raise error
        await asyncio.sleep(pause_s)


async def repeat(request: Callable[[], Awaitable[T]], passing: tuple[type[Exception], ...]) -> T:
    """Repeat a request while it fails with a temporary error, which is one of ``passing``."""
    backoff = Backoff()
    while True:
        try:
            return await request()
        except passing as error:
            await backoff.wait(error)
