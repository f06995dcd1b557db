"""The clock of the scheduler. Everything that reads the time of day takes one, so that it can be set."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """The time of day, and waits for a later one."""

    def now(self) -> float:
        """Return the seconds since 1970."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait so long."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> float:
        """Return the seconds since 1970."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Wait so long."""
        await asyncio.sleep(seconds)
