"""Enforce the limits of a sandbox as a whole from outside: by control groups if available, else by a watchdog.

The kernel enforces a control group. The watchdog polls every 50 ms, so a program can exceed its limit for that long;
the watchdog then ends the sandbox. Only a control group limits the number of busy processors, because using them is no
reason to end a sandbox. ``enforcers`` names what enforces each limit.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.guest.core import process_tree
from hermes_exec.guest.core.process_tree import read_file
from hermes_exec.guest.limits import cgroups
from hermes_exec.guest.limits.cgroups import CPU, CPUS, MEMORY, PROCESSES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec_backends.sandbox.spec import Limits

WATCHDOG = "watchdog"
POLL_S = 0.05
_KINDS = (MEMORY, PROCESSES, CPU, CPUS)
_PERIOD_US = 100_000


class LimitEnforcer:
    """Enforces the limits on memory, processes, CPU time and processors of one sandbox, from ``hold`` to ``remove``."""

    def __init__(self, limits: Limits) -> None:
        wanted = {MEMORY: limits.memory, PROCESSES: limits.processes, CPU: limits.cpu_s, CPUS: limits.cpus}
        self._limits: dict[str, float] = {kind: value for kind, value in wanted.items() if value is not None}
        self._groups: dict[str, tuple[cgroups.CgroupParent, str]] = {}
        self._name = f"{cgroups.prefix()}{secrets.token_hex(4)}"  # a number would say how many came before
        self._made: set[str] = set()
        self._own = 1
        """The number of our own processes in the group."""
        self._root = 0
        self.enforcers = dict.fromkeys(self._limits.keys() - {CPUS}, WATCHDOG)

    def hold_starter(self, starter: int) -> None:
        """Limit the process that creates the sandbox, and thereby every process that it starts.

        Joining a group is slow in the kernel, so it happens while the sandbox is created.
        """
        self._own = 2
        self._join(starter)

    def hold(self, first: int, *others: int) -> None:
        """Limit the sandbox whose process 1 is ``first``. Call it while the sandbox has only these processes."""
        self._root = first
        self._join(first, *others)

    def _join(self, *pids: int) -> None:
        if not self._limits:
            return
        # The limit on processes is set before they join, and also counts our own processes.
        homes = _homes(read_file("/proc/self/cgroup"))
        for kind in self._limits.keys() & homes.keys():
            home = homes[kind]
            folder = f"{home.folder}/{self._name}"
            try:
                if kind not in self._groups:
                    Path(folder).mkdir(exist_ok=True)
                    self._made.add(folder)
                    self._apply_limit(home, folder, kind)
                there = set(map(int, read_file(f"{folder}/cgroup.procs").split()))
                for pid in pids:
                    if pid not in there:
                        cgroups.write(f"{folder}/cgroup.procs", str(pid).encode())
            except OSError:
                self._groups.pop(kind, None)
                self.enforcers.pop(kind, None)
                if kind != CPUS:
                    self.enforcers[kind] = WATCHDOG
                continue
            self._groups[kind] = home, folder
            self.enforcers[kind] = home.enforcer

    def _apply_limit(self, home: cgroups.CgroupParent, folder: str, kind: str) -> None:
        if kind == CPU:
            return  # the group counts, and the watchdog compares
        if kind == CPUS:
            quota = str(max(1000, round(self._limits[kind] * _PERIOD_US)))  # the kernel's minimum
            new = f"{quota} {_PERIOD_US}"
            cgroups.write(f"{folder}/{home.file(kind)}", (quota if home.version == 1 else new).encode())
            return
        value = int(self._limits[kind]) + (self._own if kind == PROCESSES else 0)
        cgroups.write(f"{folder}/{home.file(kind)}", str(value).encode())
        if kind == MEMORY:
            swap = ("memory.memsw.limit_in_bytes", value) if home.version == 1 else ("memory.swap.max", 0)
            with contextlib.suppress(OSError):  # this kernel does not count swap
                cgroups.write(f"{folder}/{swap[0]}", str(swap[1]).encode())

    def find_exceeded(self) -> str:
        """The limit that is exceeded now according to the watchdog, or an empty string."""
        seen = self._limits.keys() - {CPUS}
        looked = {kind: self._limits[kind] for kind in seen if kind not in self._groups or kind == CPU}
        if not looked:
            return ""
        pids = process_tree.descendants([self._root])
        return next((kind for kind, limit in looked.items() if self._measure(kind, pids) > limit), "")

    def _measure(self, kind: str, pids: list[int]) -> float:
        if kind == PROCESSES:
            return len(pids)
        return sum(map(_memory, pids)) if kind == MEMORY else self._cpu_s(pids)

    def _cpu_s(self, pids: list[int]) -> float:
        if CPU not in self._groups:
            return sum(map(_ticks, [self._root, *pids])) / os.sysconf("SC_CLK_TCK")
        home, folder = self._groups[CPU]
        if home.version == 1:
            return int(read_file(f"{folder}/cpuacct.usage") or 0) / 1e9
        return cgroups.counter(f"{folder}/cpu.stat", b"usage_usec") / 1e6

    def find_kernel_hit(self) -> str:
        """The limit that a control group has enforced, read after the sandbox ended; or an empty string."""
        for kind, files, name in (
            (MEMORY, ("", "memory.oom_control", "memory.events"), b"oom_kill"),
            (PROCESSES, ("", "pids.events", "pids.events"), b"max"),
        ):
            if kind in self._groups:
                home, folder = self._groups[kind]
                if cgroups.counter(f"{folder}/{files[home.version]}", name):
                    return kind
        return ""

    def remove(self) -> None:
        """Remove the groups once the sandbox has ended. A later sweep removes a group that cannot be removed now."""
        for folder in self._made:
            cgroups.remove(folder)
        self._made.clear()
        self._groups.clear()


@lru_cache(maxsize=4)
def _homes(_ours: bytes) -> Mapping[str, cgroups.CgroupParent]:
    """Where groups can be created. Finding out creates one, so the answer is cached for the groups that we are in."""
    return cgroups.find(_KINDS, joins=False)


def _memory(pid: int) -> int:
    """The bytes of resident memory of a process that no file backs."""
    words = read_file(f"/proc/{pid}/statm").split()
    return max(0, int(words[1]) - int(words[2])) * os.sysconf("SC_PAGE_SIZE") if len(words) > 2 else 0


def _ticks(pid: int) -> int:
    """The CPU ticks of a process and of its children that have ended."""
    fields = read_file(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
    return sum(map(int, fields[11:15])) if len(fields) > 14 else 0
