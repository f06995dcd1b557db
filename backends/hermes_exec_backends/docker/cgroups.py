"""The limits of a container: in the control groups that its engine created, if they exist; else by a watchdog."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.guest.core.process_tree import read_file
from hermes_exec.guest.limits import cgroups
from hermes_exec.guest.limits.cgroups import CPU, CPUS, MEMORY, PROCESSES, CgroupParent
from hermes_exec_backends.sandbox.bounds import LimitEnforcer

if TYPE_CHECKING:
    from hermes_exec_backends.sandbox.spec import Limits

_UNBOUND = 1 << 60
_EVENTS = {(1, MEMORY): "memory.oom_control", (2, MEMORY): "memory.events"}
_NAMES = {MEMORY: b"oom_kill", PROCESSES: b"max"}


class ContainerBounds(LimitEnforcer):
    """The limits requested from an engine, each one trusted only where the kernel confirms it."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._hits: set[str] = set()

    def hold(self, first: int, *others: int) -> None:
        """Find the control groups of the container's processes, and their limits."""
        del others
        self._root = first
        if CPUS in self._limits:
            self.enforcers[CPUS] = "the engine"
        for kind, home in _homes(first).items():
            if kind not in self._limits:
                continue
            said = read_file(f"{home.folder}/{home.file(kind)}").strip()
            bound = int(said) if kind != CPU and said.isdigit() else _UNBOUND
            if kind == CPU or bound <= self._limits[kind] + 1:
                self._groups[kind] = home, home.folder
                self.enforcers[kind] = home.enforcer

    def find_exceeded(self) -> str:
        """Return the exceeded limit, and read the groups' counters, which vanish with the container."""
        for kind in _NAMES.keys() & self._groups.keys():
            home, folder = self._groups[kind]
            if cgroups.counter(f"{folder}/{_EVENTS.get((home.version, kind), 'pids.events')}", _NAMES[kind]):
                self._hits.add(kind)
        return super().find_exceeded()

    def record_end(self, *, out_of_memory: bool) -> None:
        """Record the engine's report of the end."""
        if out_of_memory:
            self._hits.add(MEMORY)

    def find_kernel_hit(self) -> str:
        """Return the limit that a group has enforced by itself, as far as it was observed."""
        return next((kind for kind in (MEMORY, PROCESSES) if kind in self._hits), "")

    def remove(self) -> None:
        """Do nothing: the engine removes the groups."""
        self._groups.clear()


def _homes(pid: int) -> dict[str, CgroupParent]:
    """Return the groups of a process, by the resource that they limit."""
    paths: dict[frozenset[str], str] = {}
    for line in read_file(f"/proc/{pid}/cgroup").decode("utf-8", "surrogateescape").splitlines():
        _, names, path = line.split(":", 2)
        paths[frozenset(names.split(",")) - {""}] = path
    found: dict[str, CgroupParent] = {}
    for controllers, root, mount in cgroups.mounts():
        shared = [each for names, each in paths.items() if names & controllers or not (names or controllers)]
        if not shared or ".." in shared[0]:
            continue
        inside = root != "/" and (shared[0] + "/").startswith(root + "/")
        below = shared[0].removeprefix(root) if inside else shared[0]
        home = CgroupParent(1 if controllers else 2, f"{mount}{below}")
        for kind in (MEMORY, PROCESSES, CPU):
            if kind not in found and Path(f"{home.folder}/{home.file(kind)}").is_file():
                found[kind] = home
    return found
