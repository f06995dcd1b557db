"""How many replies a turn may take. Threads may share one."""

from __future__ import annotations

import threading


class Budget:
    """A counter that never goes below nothing, nor above where it began."""

    def __init__(self, limit: int) -> None:
        """``limit`` replies."""
        self.limit = limit
        self._left = limit
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """What is left."""
        return self._left

    def take(self) -> bool:
        """Take one; False if there was none."""
        with self._lock:
            if self._left <= 0:
                return False
            self._left -= 1
            return True

    def refund(self) -> None:
        """Give one back that was taken: a reply that only started a program of many calls costs nothing."""
        with self._lock:
            self._left = min(self._left + 1, self.limit)
