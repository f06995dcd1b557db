"""``doctor --reap``: end and remove leftovers of crashed guests, dead orchestrators and expired leases."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from hermes_exec.backend import reap_expired
from hermes_exec.cli.console import CHECK_FAILED, note
from hermes_exec.cli.output import show_json, show_table
from hermes_exec.config.registry import find_backend_class, list_types
from hermes_exec.errors import HermesError
from hermes_exec.guest.core import orphan_cleanup
from hermes_exec.pool.journal import Journal
from hermes_exec.pool.orchestrator import Orchestrator
from hermes_exec.pool.owner import Liveness
from hermes_exec.pool.recovery import Fate

if TYPE_CHECKING:
    from collections.abc import Container

    from hermes_exec.backend import Leftover

_LIMIT_S = 15.0
"""For the leftovers of one backend."""


@dataclass(frozen=True, slots=True)
class Swept:
    """The cleanup after one guest, or, where ``folder`` is empty, after runners whose guest is unknown."""

    folder: str
    ended: tuple[int, ...]
    """The processes that were killed."""
    left: str
    """Paths that could not be removed, with the reason; empty when everything is gone."""


async def clean_up(*, json: bool) -> int:
    """Remove every kind of leftover, print a table, and return the exit code."""
    settled = await _reap_terminals()
    guests = reap_guests()
    targets = [each for found in await asyncio.gather(*map(_reap_backend, list_types())) for each in found]
    removed: list[Swept | Leftover] = [*guests, *targets]
    if json:
        show_json([asdict(each) for each in removed])
    elif removed:
        rows = [[each.folder, str(len(each.ended)), each.left] for each in guests]
        rows += [[each.target, "", each.left] for each in targets]
        show_table(("REMOVED", "PROCESSES ENDED", "LEFT"), rows)
    else:
        note("nothing is left of crashed guests or dead orchestrators")
    return CHECK_FAILED if any(each.left for each in removed) or not settled else 0


def reap_guests(only: Container[str] | None = None) -> list[Swept]:
    """Kill the processes and remove the folders of this user's dead guests on this machine.

    ``only`` limits this to guests with these ids (16 hexadecimal digits), and leaves orphaned runners alone.
    """
    gone = {
        name: paths
        for name, paths in orphan_cleanup.guest_folders().items()
        if (only is None or name in only) and orphan_cleanup.is_gone(paths)
    }
    swept = [Swept(folder, tuple(ended), left) for folder, ended, left in orphan_cleanup.sweep(gone)]
    if only is None:
        ended, left = orphan_cleanup.sweep_runners()
        if ended or left:
            swept.append(Swept("", tuple(ended), left))
    return swept


async def _reap_terminals() -> bool:
    """Close the terminals of dead orchestrators, but not their jobs; return whether all could be reached."""
    if Liveness.DEAD not in Journal().find_others().values():
        return True
    async with Orchestrator(recover="reap") as orchestrator:
        found = orchestrator.recovered
    for each in found:
        jobs = f", {len(each.jobs)} jobs keep running" if each.jobs else ""
        why = f" ({each.note})" if each.note else ""
        note(f"{each.target}: a terminal of a dead orchestrator: {each.fate}{jobs}{why}")
    return not any(each.fate is Fate.UNREACHABLE for each in found)


async def _reap_backend(name: str) -> list[Leftover]:
    """Remove the expired resources of one backend; a backend that cannot be asked has none."""
    try:
        async with asyncio.timeout(_LIMIT_S):
            return await reap_expired(await asyncio.to_thread(find_backend_class, name))
    except (HermesError, TimeoutError):
        return []
