"""The ready terminals of one pool, and those that are being opened or reset."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_exec.pool.options import Pool
    from hermes_exec.pool.pooled_terminal import PooledTerminal

_FIRST_REST_S = 1.0
_LONGEST_REST_S = 60.0


@dataclass(eq=False, slots=True)
class IdlePool:
    """The ready and pending terminals of one pool."""

    profile: str
    pool: Pool
    ready: deque[PooledTerminal] = field(default_factory=deque["PooledTerminal"])
    """Open and not leased; the longest open first."""
    pending: int = 0
    """How many are being opened, or reset for another use."""
    backing_off: bool = False
    """Whether a recent opening failed, so that no terminal is opened ahead for a while."""
    _rest_s: float = 0.0

    def back_off(self) -> float:
        """Record a failed opening; return the seconds to wait before the next one, which double each time."""
        self.backing_off = True
        self._rest_s = min(max(self._rest_s * 2, _FIRST_REST_S), _LONGEST_REST_S)
        return self._rest_s

    def reset_backoff(self) -> None:
        """Record a successful opening."""
        self.backing_off = False
        self._rest_s = 0.0
