"""Leases of containers and sandboxes: they are renewed while their orchestrator lives, and end on their own after it.

A backend renews the lease in its own way (a signal, a file, a request); when the lease has expired, the first process
of the container, or the vendor, ends it. A guest that still has jobs holds it longer.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_RENEWALS = 3
"""Renewals in the time of one lease."""
_SHORTEST_S = 0.2

HAS_GUEST = r"""
has_guest() {
  for has_cmdline in /proc/[0-9]*/cmdline; do
    while read -r has_text || [ -n "$has_text" ]; do
      case $has_text in *"'<"h"x "*) return 0 ;; esac
    done 2>/dev/null <"$has_cmdline"
  done
  return 1
}
"""
"""A shell function that succeeds if a guest runs in the container or sandbox.

The argv of a guest, and of the processes that supervise its jobs, identifies them. Their files prove nothing, because
they remain when all of these processes are killed at once. The function needs no program, does not find its own argv,
and its variables begin with ``has_``.
"""


def renewal_interval(lease_s: float, shortest_s: float = _SHORTEST_S) -> float:
    """Return the seconds between two renewals of a lease, at least ``shortest_s``."""
    return max(lease_s / _RENEWALS, shortest_s)


async def keep_renewing(interval_s: float, renew: Callable[[], Awaitable[object]]) -> None:
    """Call ``renew`` every ``interval_s`` seconds until cancelled; after a failure the next call is soon enough."""
    while True:
        await asyncio.sleep(interval_s)
        with contextlib.suppress(HermesError):
            await renew()


def script_arguments(*seconds: float) -> list[str]:
    """Return durations as arguments of a lease script, which counts whole seconds."""
    return [str(max(1, round(each))) for each in seconds]
