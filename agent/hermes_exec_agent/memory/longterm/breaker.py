"""A circuit breaker: after several failures in a row nothing is tried for a while."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class CircuitBreaker:
    """Counts failures in a row. Threads may share it."""

    def __init__(self, failures: int = 3, pause_s: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        """Open after ``failures`` for ``pause_s`` seconds; then one more failure opens it again."""
        self._most = failures
        self._pause_s = pause_s
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether nothing is to be tried now."""
        return self._clock() < self._until

    def succeed(self) -> None:
        """Count a success."""
        with self._lock:
            self._failures, self._until = 0, 0.0

    def fail(self) -> None:
        """Count a failure."""
        with self._lock:
            self._failures += 1
            if self._failures >= self._most:
                self._until = self._clock() + self._pause_s
