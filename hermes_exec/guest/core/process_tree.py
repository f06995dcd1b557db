"""Process trees: their members, and killing all of them.

Each shell and each runner is a child subreaper, so everything that its commands start stays below it, also after
``setsid`` and a double fork. Processes are identified by pid and start time, never by name, environment or process
group, which the processes control themselves.
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
"""A process that survives SIGKILL this long hangs in the kernel, and is not waited for any longer."""

_HAS_CHILDREN_FILES = os.path.exists("/proc/self/task/{}/children".format(os.getpid()))


def read_file(path: str) -> bytes:
    """Read a file of procfs, up to 1 MiB; empty when its process is gone."""
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
    """Return state letter, parent and start time (clock ticks since boot); state ``b""`` when the process is gone."""
    fields = read_file("/proc/{}/stat".format(pid)).rpartition(b") ")[2].split()
    if len(fields) < 20:
        return b"", 0, 0
    return fields[0], int(fields[1]), int(fields[19])


def session_of(pid: int) -> int:
    """Return the session id of a process; 0 when it is gone."""
    fields = read_file("/proc/{}/stat".format(pid)).rpartition(b") ")[2].split()
    return int(fields[3]) if len(fields) > 3 else 0


def _names(folder: str) -> "list[str]":
    while True:
        try:
            return os.listdir(folder)
        except InterruptedError:
            pass  # some kernels report a signal during the open, which Python does not retry


def children(pid: int) -> "list[int]":
    """The direct children of all threads of a process."""
    if not _HAS_CHILDREN_FILES:
        return _scan().get(pid, [])
    main = "/proc/{}/task/{}/children".format(pid, pid)
    found = read_file(main).split()
    try:
        threads = _names("/proc/{}/task".format(pid))
    except OSError:
        return []
    for thread in threads:
        if thread != str(pid):
            found += read_file("/proc/{}/task/{}/children".format(pid, thread)).split()
    return [int(child) for child in found]


def children_file(pid: int) -> int:
    """Open the children file of a single-threaded process, to be read at offset 0; -1 if the kernel has none."""
    try:
        return os.open("/proc/{}/task/{}/children".format(pid, pid), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _scan() -> "dict[int, list[int]]":
    """Return parents and their children from the process table, for kernels without children files."""
    table: "dict[int, list[int]]" = {}
    for name in _names("/proc"):
        if name.isdigit():
            state, parent, _ = stat(int(name))
            if state:
                table.setdefault(parent, []).append(int(name))
    return table


def descendants(roots: "Iterable[int]") -> "list[int]":
    """Return all descendants of ``roots``."""
    table = None if _HAS_CHILDREN_FILES else _scan()
    found: "list[int]" = []
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        below = children(pid) if table is None else table.get(pid, [])
        found += below
        waiting += below
    return found


def living_processes(pids: "Iterable[int]") -> "set[Process]":
    """Return those that are alive, with start times; zombies are not alive."""
    alive: "set[Process]" = set()
    for pid in pids:
        state, _, start = stat(pid)
        if state and state not in b"ZX":
            alive.add((pid, start))
    return alive


def same_processes(processes: "Iterable[Process]") -> "set[Process]":
    """Return those whose pid still belongs to the same process, alive or zombie."""
    return {(pid, start) for pid, start in processes if stat(pid)[2] == start}


def send(process: "Process", number: int) -> None:
    """Signal a process, unless its pid belongs to another one by now."""
    pid, start = process
    if stat(pid)[2] == start:
        try:
            os.kill(pid, number)
        except OSError:
            pass  # gone, or of another user: the next round shows which


def kill_all(targets: "Callable[[], Iterable[int]]", patience_s: float) -> "tuple[set[Process], set[Process]]":
    """Kill the processes of ``targets``, called in each round, until it returns none; return the killed and the rest.

    It blocks, for callers without an event loop.
    """
    killed: "set[Process]" = set()
    give_up = now() + patience_s
    while True:
        left = living_processes(targets())
        if not left or now() > give_up:
            return killed, left
        for process in left:
            send(process, _signal.SIGKILL)
        killed |= left
        time.sleep(0.003)  # there is no event for the end of a process that is not a child


class TreeKill:
    """Ends processes: SIGTERM, after the grace SIGKILL in rounds until none is left, then ``done``.

    ``targets`` is called in every round, so processes that are started meanwhile are found too. ``done`` gets the pids
    that could not be ended (of another user, or hanging in the kernel).
    """

    active = 0
    on_quiet: "list[Callable[[], None]]" = []  # noqa: RUF012  of all kills together, as ``active`` is
    """Called when the last active kill is done."""

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
        self._signalled: "set[Process]" = set()
        self._pause = 0.002
        TreeKill.active += 1
        self._round()

    def hurry(self, grace_s: float) -> None:
        """Shorten the grace."""
        self._kill_at = min(self._kill_at, now() + grace_s)

    def _round(self) -> None:
        # Processes that were signalled stay targets, as without a subreaper orphans leave the tree.
        alive = living_processes(self._targets()) | living_processes(pid for pid, _ in same_processes(self._signalled))
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
            elif process not in self._signalled:
                send(process, _signal.SIGTERM)
                send(process, _signal.SIGCONT)
        self._signalled |= alive
        if late < 0:
            self._pause = min(self._pause * 2, 0.05, -late)
        else:
            self._pause = 0.003
        self._loop.call_later(self._pause, self._round)
