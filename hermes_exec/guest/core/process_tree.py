"""Process trees: who descends from whom, and ending all of them.

Each shell and each runner is a child subreaper, so whatever its commands start stays below it, also
after ``setsid`` and a double fork. Processes are told apart by pid and start time, never by name,
environment or process group, because those are in the processes' own hands.
"""

import _signal
import os
import time

from .loop import now

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable

    from .loop import Loop

    Process = tuple[int, int]
    """Pid and start time."""

GIVE_UP_S = 10.0
"""A process that survives SIGKILL this long hangs in the kernel; nobody waits for it any longer."""

_HAS_CHILDREN_FILES = os.path.exists("/proc/self/task/{}/children".format(os.getpid()))


def read(path: str) -> bytes:
    """A file of the kernel's, up to 1 MiB; empty when what it tells of is gone."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(fd, 1 << 20)
    except OSError:
        return b""
    finally:
        os.close(fd)


def stat(pid: int) -> "tuple[bytes, int, int]":
    """State letter, parent and start time (clock ticks since boot); state ``b""`` when it is gone."""
    fields = read("/proc/{}/stat".format(pid)).rpartition(b") ")[2].split()
    if len(fields) < 20:
        return b"", 0, 0
    return fields[0], int(fields[1]), int(fields[19])


def session(pid: int) -> int:
    """The pid of the process that led its session when it was started; 0 when it is gone."""
    fields = read("/proc/{}/stat".format(pid)).rpartition(b") ")[2].split()
    return int(fields[3]) if len(fields) > 3 else 0


def _names(folder: str) -> "list[str]":
    while True:
        try:
            return os.listdir(folder)
        except InterruptedError:
            pass  # a signal came while it was opened, which some kernels tell, and Python tries only other calls again


def children(pid: int) -> "list[int]":
    """The direct children of all threads of a process."""
    if not _HAS_CHILDREN_FILES:
        return _scan().get(pid, [])
    main = "/proc/{}/task/{}/children".format(pid, pid)
    found = read(main).split()
    try:
        threads = _names("/proc/{}/task".format(pid))
    except OSError:
        return []
    for thread in threads:
        if thread != str(pid):
            found += read("/proc/{}/task/{}/children".format(pid, thread)).split()
    return [int(child) for child in found]


def children_file(pid: int) -> int:
    """A descriptor that at offset 0 reads as the children of a process with one thread; -1 without such files."""
    try:
        return os.open("/proc/{}/task/{}/children".format(pid, pid), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _scan() -> "dict[int, list[int]]":
    """Parents and their children from the whole process table, where the kernel has no children files."""
    table: "dict[int, list[int]]" = {}
    for name in _names("/proc"):
        if name.isdigit():
            state, parent, _ = stat(int(name))
            if state:
                table.setdefault(parent, []).append(int(name))
    return table


def descendants(roots: "Iterable[int]") -> "list[int]":
    """Everything below ``roots``, without them."""
    table = None if _HAS_CHILDREN_FILES else _scan()
    found: "list[int]" = []
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        below = children(pid) if table is None else table.get(pid, [])
        found += below
        waiting += below
    return found


def living(pids: "Iterable[int]") -> "set[Process]":
    """Those that still run, with their start times; zombies are dead."""
    alive: "set[Process]" = set()
    for pid in pids:
        state, _, start = stat(pid)
        if state and state not in b"ZX":
            alive.add((pid, start))
    return alive


def still(processes: "Iterable[Process]") -> "set[Process]":
    """Those that are the same processes still, alive or not reaped."""
    return {(pid, start) for pid, start in processes if stat(pid)[2] == start}


def send(process: "Process", number: int) -> None:
    """Signal a process unless its pid belongs to another one by now."""
    pid, start = process
    if stat(pid)[2] == start:
        try:
            os.kill(pid, number)
        except OSError:
            pass  # gone, or not ours to signal: the next look tells which


def kill_all(targets: "Callable[[], Iterable[int]]", patience_s: float) -> "tuple[set[Process], set[Process]]":
    """Kill what ``targets`` gives, asked anew in each round, until it gives none; those killed, and those left.

    It blocks, for whoever has no loop.
    """
    killed: "set[Process]" = set()
    give_up = now() + patience_s
    while True:
        left = living(targets())
        if not left or now() > give_up:
            return killed, left
        for process in left:
            send(process, _signal.SIGKILL)
        killed |= left
        time.sleep(0.003)  # no event tells when a process that is not our child is gone


class TreeKill:
    """Ends processes: TERM, then after the grace KILL in rounds until none is left, then ``done``.

    ``targets`` is asked anew in every round, so what is started meanwhile is found too. ``done`` is given
    the pids that could not be ended (not ours to signal, or hanging in the kernel).
    """

    active = 0
    on_quiet: "list[Callable[[], None]]" = []  # noqa: RUF012  of all kills together, as ``active`` is
    """Called when the last kill that was at work is done."""

    def __init__(
        self,
        loop: "Loop",
        targets: "Callable[[], Iterable[int]]",
        grace_s: float,
        done: "Callable[[list[int]], None]",
    ) -> None:
        self._loop = loop
        self._targets = targets
        self._kill_at = now() + grace_s
        self._done = done
        self._told: "set[Process]" = set()
        self._pause = 0.002
        TreeKill.active += 1
        self._round()

    def hurry(self, grace_s: float) -> None:
        """Shorten the grace."""
        self._kill_at = min(self._kill_at, now() + grace_s)

    def _round(self) -> None:
        # What was told once is not forgotten where the kernel hands its orphans to nobody of ours.
        alive = living(self._targets()) | living(pid for pid, _ in still(self._told))
        late = now() - self._kill_at
        if not alive or late > GIVE_UP_S:
            TreeKill.active -= 1
            self._done([pid for pid, _ in alive])
            if not TreeKill.active:
                for call in TreeKill.on_quiet:
                    self._loop.call_soon(call)
            return
        for process in alive:
            if late >= 0:
                send(process, _signal.SIGKILL)
            elif process not in self._told:
                send(process, _signal.SIGTERM)
                send(process, _signal.SIGCONT)
        self._told |= alive
        if late < 0:
            self._pause = min(self._pause * 2, 0.05, -late)
        else:
            self._pause = 0.003
        self._loop.call_later(self._pause, self._round)
