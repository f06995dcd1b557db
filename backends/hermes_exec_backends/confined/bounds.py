"""What bounds a sandbox as a whole from outside: control groups where there are any, a watchdog elsewhere.

A group is the kernel's own bound. The watchdog looks every twentieth of a second, so a program can be above its
limit for that long; it ends the sandbox then. Which of them holds what is told in ``enforcers``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.guest import cgroups, tree
from hermes_exec.guest.cgroups import CPU, MEMORY, PROCESSES

if TYPE_CHECKING:
    from hermes_exec_backends.confined.spec import Limits

WATCHDOG = "watchdog"
LOOK_S = 0.05
_numbers = itertools.count()


class Bounds:
    """The limits of one sandbox on memory, processes and CPU time, from ``hold`` to ``remove``."""

    def __init__(self, limits: Limits) -> None:
        wanted = {MEMORY: limits.memory, PROCESSES: limits.processes, CPU: limits.cpu_s}
        self._limits: dict[str, float] = {kind: value for kind, value in wanted.items() if value is not None}
        self._groups: dict[str, tuple[cgroups.Home, str]] = {}
        self._root = 0
        self.enforcers = dict.fromkeys(self._limits, WATCHDOG)

    def hold(self, first: int, *others: int) -> None:
        """Bound the sandbox whose process 1 is ``first``; called while nothing but these processes is in it."""
        self._root = first
        if not self._limits:
            return
        # A bound on processes is in place before they join, and counts process 1 as well, which is ours.
        homes = cgroups.find(joins=False)
        name = f"{cgroups.prefix()}{next(_numbers)}"
        for kind in self._limits.keys() & homes.keys():
            home = homes[kind]
            folder = f"{home.folder}/{name}"
            try:
                Path(folder).mkdir(exist_ok=True)
                self._bound(home, folder, kind)
                for pid in (first, *others):
                    cgroups.write(f"{folder}/cgroup.procs", str(pid).encode())
            except OSError:
                continue  # the watchdog it is
            self._groups[kind] = home, folder
            self.enforcers[kind] = home.enforcer

    def _bound(self, home: cgroups.Home, folder: str, kind: str) -> None:
        if kind == CPU:
            return  # it counts, and we look
        value = int(self._limits[kind]) + (1 if kind == PROCESSES else 0)
        cgroups.write(f"{folder}/{home.file(kind)}", str(value).encode())
        if kind == MEMORY:
            swap = ("memory.memsw.limit_in_bytes", value) if home.version == 1 else ("memory.swap.max", 0)
            with contextlib.suppress(OSError):  # a kernel that does not count swap
                cgroups.write(f"{folder}/{swap[0]}", str(swap[1]).encode())

    def exceeded(self) -> str:
        """The limit that the watchdog sees exceeded at this moment, or nothing."""
        looked = {kind: self._limits[kind] for kind in self._limits if kind not in self._groups or kind == CPU}
        if not looked:
            return ""
        pids = tree.descendants([self._root])
        return next((kind for kind, limit in looked.items() if self._used(kind, pids) > limit), "")

    def _used(self, kind: str, pids: list[int]) -> float:
        if kind == PROCESSES:
            return len(pids)
        return sum(map(_memory, pids)) if kind == MEMORY else self._cpu_s(pids)

    def _cpu_s(self, pids: list[int]) -> float:
        if CPU not in self._groups:
            return sum(map(_ticks, [self._root, *pids])) / os.sysconf("SC_CLK_TCK")
        home, folder = self._groups[CPU]
        if home.version == 1:
            return int(cgroups.read(f"{folder}/cpuacct.usage") or 0) / 1e9
        return cgroups.counter(f"{folder}/cpu.stat", b"usage_usec") / 1e6

    def hit(self) -> str:
        """The limit that a group has enforced by itself, once all is over; or nothing."""
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
        """Remove the groups; the sandbox has ended. One that will not go is removed by a later sweep."""
        for folder in {folder for _, folder in self._groups.values()}:
            cgroups.remove(folder)
        self._groups.clear()


def _memory(pid: int) -> int:
    """Bytes that are a process's own, not shared with files."""
    words = cgroups.read(f"/proc/{pid}/statm").split()
    return max(0, int(words[1]) - int(words[2])) * os.sysconf("SC_PAGE_SIZE") if len(words) > 2 else 0


def _ticks(pid: int) -> int:
    """CPU time of a process and of its children that have ended."""
    fields = cgroups.read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
    return sum(map(int, fields[11:15])) if len(fields) > 14 else 0
