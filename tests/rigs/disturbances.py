"""Random faults of a proxy and of the processes behind it, with a log of when each began."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.rigs.faulty_proxy import FaultyProxy


@dataclass(frozen=True)
class Way:
    """A way to a target: its proxy, and the processes on it, listed anew at each call.

    ``endure`` lists processes that may be stopped but not killed, since the rig does not start them again; ``ours``
    those of hermes_exec itself in the target, whose death may cost a terminal.
    """

    name: str
    proxy: FaultyProxy
    serving: Callable[[], list[int]]
    ours: Callable[[], list[int]]
    endure: Callable[[], list[int]] = list


class Disturber:
    """Disturbs a way at random moments until it is cancelled, and undoes then what lasts."""

    def __init__(self, way: Way, chance: random.Random, longest_s: float) -> None:
        """``longest_s`` bounds a fault that lasts; the pause between two faults is 1 s at most."""
        self.count: Counter[str] = Counter()
        self._outages: list[tuple[float, float]] = []
        self._way = way
        self._chance = chance
        self._longest_s = longest_s
        self._stopped: set[int] = set()
        self._log = logging.getLogger("storm")

    async def run(self) -> None:
        """Disturb."""
        try:
            while True:
                await asyncio.sleep(self._chance.random())
                faults = [
                    *(self._cut, self._cut, self._half_close, self._hold, self._delay, self._refuse),
                    *(self._kill_serving, self._stop_serving, self._stop_ours, self._kill_ours),
                ]
                fault = self._chance.choices(faults, [6, 6, 6, 3, 3, 3, 3, 3, 3, 1])[0]
                self.count[fault.__name__.strip("_")] += 1
                self._log.info("%s %s", self._way.name, fault.__name__)
                await fault(self._way)
        finally:
            self._way.proxy.restore()
            for pid in self._stopped:
                self._signal(pid, signal.SIGCONT)

    async def _last(self) -> None:
        """Let a fault last: short faults are frequent, long ones rare."""
        begin = time.monotonic()
        end = begin + self._longest_s * self._chance.random() ** 3
        self._outages.append((begin, end))
        await asyncio.sleep(end - begin)

    def outage_s(self, begin: float, end: float) -> float:
        """How many of the seconds between two readings of ``time.monotonic`` had a fault that lasts."""
        return sum(max(0.0, min(end, last) - max(begin, first)) for first, last in self._outages)

    async def _cut(self, way: Way) -> None:
        way.proxy.cut(reset=self._chance.random() < 0.5)

    async def _half_close(self, way: Way) -> None:
        way.proxy.half_close(self._chance)

    async def _hold(self, way: Way) -> None:
        way.proxy.hold(*self._chance.choice([(0,), (1,), (0, 1)]))
        await self._last()
        way.proxy.restore()

    async def _delay(self, way: Way) -> None:
        way.proxy.delay(self._chance.choice([0.01, 0.1, 0.3]))
        await self._last()
        way.proxy.restore()

    async def _refuse(self, way: Way) -> None:
        way.proxy.refuse()
        way.proxy.cut(reset=True)
        await self._last()
        way.proxy.restore()

    async def _kill_serving(self, way: Way) -> None:
        self._signal_one(await asyncio.to_thread(way.serving), signal.SIGKILL)

    async def _kill_ours(self, way: Way) -> None:
        self._signal_one(await asyncio.to_thread(way.ours), signal.SIGKILL)

    async def _stop_serving(self, way: Way) -> None:
        await self._stop(way.serving() + way.endure())

    async def _stop_ours(self, way: Way) -> None:
        await self._stop(await asyncio.to_thread(way.ours))

    async def _stop(self, pids: list[int]) -> None:
        pid = self._signal_one(pids, signal.SIGSTOP)
        if pid:
            self._stopped.add(pid)
            await self._last()
            self._signal(pid, signal.SIGCONT)
            self._stopped.discard(pid)

    def _signal_one(self, pids: list[int], number: signal.Signals) -> int:
        if not pids:
            return 0
        pid = self._chance.choice(sorted(pids))
        self._signal(pid, number)
        return pid

    @staticmethod
    def _signal(pid: int, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
