"""Render a policy as limits of each process (setrlimit(2)) and of all processes (control groups)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_exec_policies.model import Policy

_PERIOD_US = 100_000
_LEAST_US = 1000
"""The kernel's minimum of a quota."""
_NO_CORE = 1
"""The size in bytes that disables core dumps. With 0 the kernel still pipes dumps to an outside program, if the
machine's ``core_pattern`` names one; with 1 it does not."""
_GRACE_S = 5
"""Seconds between SIGXCPU and SIGKILL."""


def rlimits(policy: Policy, *, memory: bool = False, processes: bool = False) -> tuple[tuple[str, int, int], ...]:
    """Name, soft and hard limit of each, sorted by name; names are those of ``resource`` without RLIMIT.

    ``memory`` limits the address space, if nothing else limits memory. ``processes`` limits the processes of the user,
    which is only useful for a user without other processes.
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
    """Control files and their contents, in order, for a control group of version 1 or 2."""
    limits = policy.limits
    found: list[tuple[str, str]] = []
    if limits.memory is not None:
        names = ("memory.max", "memory.swap.max") if version == 2 else ("memory.limit_in_bytes",)
        found.append((names[0], str(limits.memory)))
        # The limit includes swap: version 2 sets swap to 0, version 1 counts memory and swap together.
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
