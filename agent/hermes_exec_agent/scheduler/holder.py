"""The processes that hold slots and deliveries, and whether they still live.

On this machine the process itself decides: while it exists it holds what it took, however late it is, and once it is
killed it holds nothing. Of other machines only the lease is known, which each holder renews while it works.
"""

from __future__ import annotations

import json

from hermes_exec.config.paths import to_printable
from hermes_exec.pool.owner import Liveness, Owner

LEASE_S = 120.0
"""Seconds after which a holder on another machine that did not renew its lease counts as gone."""


def format_holder(owner: Owner) -> str:
    """Return a holder as its rows have it."""
    return json.dumps(owner.values)


def is_gone(holder: str, lease: float, now: float) -> bool:
    """Whether the process that wrote a row has ended, or counts as gone."""
    owner = _parse(holder)
    life = Liveness.ELSEWHERE if owner is None else owner.liveness
    return life is Liveness.DEAD or (life is Liveness.ELSEWHERE and lease < now)


def describe_holder(holder: str) -> str:
    """Return the process for a message."""
    owner = _parse(holder)
    return "another process" if owner is None else f"process {owner.pid} on {to_printable(owner.host)}"


def _parse(holder: str) -> Owner | None:
    try:
        return Owner.from_values(json.loads(holder))
    except (TypeError, ValueError, RecursionError):
        return None
