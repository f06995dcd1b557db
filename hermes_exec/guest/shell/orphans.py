"""Orphans: a process that outlives its shell becomes the guest's own child, and still belongs to its session.

A session's shells and their orphans are also recorded in the session's folder, by pid and start time. If the guest is
killed together with its supervisor, the next guest of this user ends the recorded processes (``orphan_cleanup``).
"""

import os

from ..core import process_tree
from .folders import write_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..core.loop import Loop


class Orphans:
    """The processes that a session's ended shells left alive, and the record of all that may have to be ended later."""

    _claimed: "set[process_tree.Process]" = set()  # noqa: RUF012  by whichever session, so that none is claimed twice

    def __init__(self, loop: "Loop", folder: str) -> None:
        self._loop = loop
        self._folder = folder
        self._mine: "set[process_tree.Process]" = set()
        self._recorded: "set[process_tree.Process]" = set()

    def record(self, processes: "set[process_tree.Process]") -> None:
        """Record processes for the next guest; ended ones are removed from the record."""
        if processes <= self._recorded:
            return
        self._recorded = process_tree.same_processes(self._recorded | processes)
        lines = ["{} {}\n".format(pid, start) for pid, start in sorted(self._recorded)]
        path = self._folder + "/left"
        try:
            write_file(path + ".new", "".join(lines).encode())
            os.replace(path + ".new", path)
        except OSError:
            pass  # no disk space, or no folder: processes below a shell are found without a record

    def claim(self, shell: int) -> "set[process_tree.Process]":
        """Claim the processes that the shell of that pid has just left, and no other shell's."""
        own = self._loop.own_children()
        found = (
            process_tree.living_processes(pid for pid in process_tree.children(os.getpid()) if pid not in own)
            - Orphans._claimed
        )
        new = {process for process in found if process_tree.session_of(process[0]) not in own - {shell}}
        Orphans._claimed = process_tree.same_processes(Orphans._claimed) | new
        self._mine = process_tree.same_processes(self._mine) | new
        self.record(new)
        return new

    def kill(self, processes: "set[process_tree.Process]", grace_s: float, done: "Callable[[list[int]], None]") -> None:
        """End some of them, with their process trees."""

        def targets() -> "list[int]":
            pids = [process[0] for process in process_tree.same_processes(processes)]
            return pids + process_tree.descendants(pids)

        process_tree.TreeKill(self._loop, targets, grace_s, done)

    def kill_all(self, grace_s: float, done: "Callable[[list[int]], None]") -> None:
        """End all of them."""
        self.kill(self._mine, grace_s, done)
