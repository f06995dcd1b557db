"""Detection of a silent peer: it is pinged, and given up when it does not answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_S = 15.0
MISSES = 3
"""Consecutive intervals without a byte after which a peer is given up."""
_LATE_S = 1.0


class Heartbeat:
    """Watches one peer on one event loop.

    After each ``interval_s`` seconds without a byte it calls ``ask``, which sends a ping. After the third such interval
    in a row it calls ``give_up``. It stops when ``is_needed`` returns false.
    """

    def __init__(
        self,
        interval_s: float,
        ask: Callable[[], None],
        give_up: Callable[[], None],
        is_needed: Callable[[], bool],
    ) -> None:
        self.patience_s = MISSES * interval_s
        """Seconds of silence after which the peer is given up."""
        self._loop = asyncio.get_running_loop()
        self._interval_s = interval_s
        self._ask = ask
        self._give_up = give_up
        self._is_needed = is_needed
        self._heard = self._seen = self._loop.time()
        self._misses = 0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def record_activity(self) -> None:
        """Note that the peer has sent any bytes. Thread-safe."""
        self._heard = self._loop.time()

    @property
    def silence_s(self) -> float:
        """Seconds since the last byte."""
        return self._loop.time() - self._heard

    def watch(self) -> None:
        """Start to watch, unless running. Earlier silence does not count."""
        if self._timer is None:
            self._heard = self._seen = self._loop.time()
            self._misses = 0
            self._wait(self._interval_s)

    def stop(self) -> None:
        """Stop to watch, until ``watch``."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, delay_s: float) -> None:
        self._due = self._loop.time() + delay_s
        self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        if not self._is_needed():
            return
        if self._heard > self._seen:
            self._seen, self._misses = self._heard, 0
            self._wait(max(0.0, self._heard + self._interval_s - now))
            return
        # A late timer means that this process was stopped or starved, and has not read yet: it is not silent.
        if now - self._due <= max(_LATE_S, self._interval_s / 2):
            self._misses += 1
        if self._misses == MISSES:
            self._give_up()
            return
        self._ask()
        if self._timer is None:  # else ``ask`` has restarted it
            self._wait(self._interval_s)
