"""Termination of a process tree from outside, by polling the target's ``/proc``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_exec.backend import Exit
    from hermes_exec.transport.shell.target import ProcessStat, ShellTarget

_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


async def kill_tree(place: ShellTarget, root: ProcessStat, grace_s: float, closed: asyncio.Future[Exit]) -> list[int]:
    """Send TERM to ``root`` and its tree, KILL after the grace period; return the surviving pids.

    Processes once seen are remembered, so they are found again after their parent has exited. ``closed`` is the end of
    the command's channel, after which a check is worthwhile.

    Raises:
        PlaceError: the target could not be examined, so it is unknown which processes are alive.
    """
    loop = asyncio.get_running_loop()
    kill_at = loop.time() + grace_s
    known = {str(root): None}  # an ordered set
    living = await place.signal_tree("TERM" if grace_s > 0 else "0", list(known))
    if living:
        await asyncio.wait([closed], timeout=grace_s)
    pause = _PAUSE_S
    while living:
        known.update(dict.fromkeys(living))
        if loop.time() >= kill_at:
            living = await place.signal_tree("KILL", list(known))
            break
        living = await place.signal_tree("0", list(known))
        if living:
            await asyncio.sleep(min(pause, max(0.0, kill_at - loop.time())))
            pause = min(2 * pause, _LONGEST_PAUSE_S)
    return [int(process.partition(":")[0]) for process in living]
