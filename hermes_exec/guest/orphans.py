"""Orphans: a process that outlives its shell becomes the guest's own child, and still belongs to its session."""

import os

from . import tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from .loop import Loop


class Orphans:
    """What the ended shells of one session left alive."""

    _claimed: "set[tree.Process]" = set()  # noqa: RUF012  by whichever session, so that none is claimed twice

    def __init__(self, loop: "Loop") -> None:
        self._loop = loop
        self._mine: "set[tree.Process]" = set()

    def claim(self, shell: int) -> "set[tree.Process]":
        """Take what the shell of that pid has just left behind, and nothing of any other shell's."""
        own = self._loop.own_children()
        found = tree.living(pid for pid in tree.children(os.getpid()) if pid not in own) - Orphans._claimed
        new = {process for process in found if tree.session(process[0]) not in own - {shell}}
        Orphans._claimed = tree.still(Orphans._claimed) | new
        self._mine = tree.still(self._mine) | new
        return new

    def kill(self, processes: "set[tree.Process]", grace_s: float, done: "Callable[[list[int]], None]") -> None:
        """End some of them, with all that they started."""

        def targets() -> "list[int]":
            pids = [process[0] for process in tree.still(processes)]
            return pids + tree.descendants(pids)

        tree.TreeKill(self._loop, targets, grace_s, done)

    def kill_all(self, grace_s: float, done: "Callable[[list[int]], None]") -> None:
        """End all of them."""
        self.kill(self._mine, grace_s, done)
