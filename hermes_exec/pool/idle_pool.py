"""The terminals of one pool that wait ready, and those that are on their way."""

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
    """What one pool has."""

    profile: str
    pool: Pool
    ready: deque[PooledTerminal] = field(default_factory=deque["PooledTerminal"])
    """Open, and nobody's; the longest open first."""
    pending: int = 0
    """How many are being opened, or cleaned to be used again."""
    backing_off: bool = False
    """Openings failed of late, so nothing is opened ahead for a while."""
    _rest_s: float = 0.0

    def back_off(self) -> float:
        """An opening failed; gives the seconds to rest, which double each time."""
        self.backing_off = True
        self._rest_s = min(max(self._rest_s * 2, _FIRST_REST_S), _LONGEST_REST_S)
        return self._rest_s

    def reset_backoff(self) -> None:
        """An opening went well."""
        self.backing_off = False
        self._rest_s = 0.0
