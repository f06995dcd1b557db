"""What orchestrators that died have left on record: told by ``doctor``, settled by ``doctor --reap``."""

from __future__ import annotations

from collections import Counter

from hermes_exec.backend import Check
from hermes_exec.cli.say import note
from hermes_exec.orchestrator.journal import Journal
from hermes_exec.orchestrator.orchestrator import Orchestrator
from hermes_exec.orchestrator.owner import Life
from hermes_exec.orchestrator.recovery import Fate


def check() -> Check:
    """How many terminals are recorded, and whether those that recorded them live."""
    journal = Journal()
    counts = Counter[Life]()
    try:
        for folder, life in journal.others().items():
            counts[life] += len(journal.entries(folder))
    except OSError as error:
        return Check("orchestrators", "warning", f"{error.filename}: {error.strerror}", "export XDG_STATE_HOME=…")
    detail = f"{counts[Life.LIVING]} terminals open"
    if counts[Life.ELSEWHERE]:
        detail += f", {counts[Life.ELSEWHERE]} of other machines or containers, to be judged there"
    if counts[Life.DEAD]:
        detail += f", {counts[Life.DEAD]} left by orchestrators that died"
        return Check("orchestrators", "warning", detail, "hermes-exec doctor --reap")
    return Check("orchestrators", "ok", detail)


async def settle() -> bool:
    """End what dead orchestrators left, but jobs, and tell; False when some of it is out of reach."""
    if Life.DEAD not in Journal().others().values():
        return True
    async with Orchestrator(recover="reap") as orchestrator:
        found = orchestrator.recovered
    for each in found:
        jobs = f", {len(each.jobs)} jobs go on" if each.jobs else ""
        why = f" ({each.note})" if each.note else ""
        note(f"{each.target}: a terminal of a dead orchestrator: {each.fate}{jobs}{why}")
    return not any(each.fate is Fate.UNREACHABLE for each in found)
