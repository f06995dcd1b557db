"""Remove what is left of guests that were killed together with their keepers: folders and processes.

The next guest in the same place does so too, by itself and only where it can be certain; this is for when
somebody asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec.guest import leftovers

if TYPE_CHECKING:
    from collections.abc import Container


@dataclass(frozen=True, slots=True)
class Swept:
    """What was done about one guest, or (``folder`` is empty) about programs whose guest is not known."""

    folder: str
    ended: tuple[int, ...]
    """The processes that were killed."""
    left: str
    """What could not be removed, and why; empty when everything is gone."""


def reap(only: Container[str] | None = None) -> list[Swept]:
    """Kill and remove all that gone guests of this user left on this machine.

    ``only`` names the guests (16 hexadecimal digits) that are looked at, and leaves orphaned runners alone.
    """
    gone = {
        name: paths
        for name, paths in leftovers.folders().items()
        if (only is None or name in only) and leftovers.is_gone(paths)
    }
    swept = [Swept(folder, tuple(ended), left) for folder, ended, left in leftovers.sweep(gone)]
    if only is None:
        ended, left = leftovers.sweep_runners()
        if ended or left:
            swept.append(Swept("", tuple(ended), left))
    return swept
