"""Limits of each process by setrlimit(2), and of all together by control groups."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_exec_policies.model import Policy

_PERIOD_US = 100_000
_LEAST_US = 1000
"""The least that a kernel takes for a part of that."""
_NO_CORE = 1
"""Bytes that no dump fits in. 0 means the same for files, but has dumps given to a program outside, if the machine's
``core_pattern`` names one; 1 is what the kernel takes for none at all."""
_GRACE_S = 5
"""Between the signal that tells a process of its limit and the one that ends it."""


def rlimits(policy: Policy, *, memory: bool = False, processes: bool = False) -> tuple[tuple[str, int, int], ...]:
    """Name, soft and hard value of each, sorted by name; names are those of ``resource``, without RLIMIT.

    ``memory`` bounds the address space, for places that nothing else bounds; ``processes`` counts all of the user,
    which says something where nothing else runs as that user.
    """
    limits = policy.limits
    found: dict[str, int | None] = {
        "fsize": limits.file_size,
        "nofile": limits.open_files,
        "core": _NO_CORE if limits.core == 0 else limits.core,
        "memlock": limits.locked_memory,
        "msgqueue": limits.message_queues,
        "sigpending": limits.pending_signals,
        "as": limits.memory if memory else None,
        "nproc": limits.processes if processes else None,
    }
    plain = [(name, value, value) for name, value in found.items() if value is not None]
    if limits.cpu_time is not None:
        seconds = math.ceil(limits.cpu_time)
        plain.append(("cpu", seconds, seconds + _GRACE_S))
    return tuple(sorted(plain))


def cgroup(policy: Policy, version: int) -> tuple[tuple[str, str], ...]:
    """Control files and what to write into them, in this order, of a group of version 1 or 2."""
    limits = policy.limits
    found: list[tuple[str, str]] = []
    if limits.memory is not None:
        names = ("memory.max", "memory.swap.max") if version == 2 else ("memory.limit_in_bytes",)
        found.append((names[0], str(limits.memory)))
        # Without swap a limit of memory is one of both; version 1 counts them together.
        found += (
            [("memory.swap.max", "0"), ("memory.oom.group", "1")]
            if version == 2
            else [("memory.memsw.limit_in_bytes", str(limits.memory))]
        )
    if limits.processes is not None:
        found.append(("pids.max", str(limits.processes)))
    if limits.cpus is not None:
        quota = max(_LEAST_US, round(limits.cpus * _PERIOD_US))
        if version == 2:
            found.append(("cpu.max", f"{quota} {_PERIOD_US}"))
        else:
            found += [("cpu.cfs_period_us", str(_PERIOD_US)), ("cpu.cfs_quota_us", str(quota))]
    return tuple(found)
