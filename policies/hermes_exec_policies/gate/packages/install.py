"""Install packages once for each set of requirements: resolved and fetched outside, unpacked in a sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec_policies.canaries.prove import prove
from hermes_exec_policies.gate.launch import PYTHON, identify_interpreter, python_version
from hermes_exec_policies.gate.packages.requirements import find_known_bad
from hermes_exec_policies.gate.packages.tools import PIP, copy_tools, unpack_wheels
from hermes_exec_policies.gate.verdict import SkillRefused

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from packaging.requirements import Requirement

    from hermes_exec_policies.gate.packages.environments import Environments
    from hermes_exec_policies.model import Policy


async def install(policy: Policy, wanted: Sequence[Requirement], work: Path, store: Environments) -> Path:
    """Return the folder of packages that satisfies requirements; it is kept for the next skill that has the same.

    Args:
        policy: the confinement in which wheels are unpacked.
        wanted: the requirements, at least one.
        work: a private folder that a sandbox's user can reach.
        store: the kept folders.

    Raises:
        SkillRefused: they cannot be resolved or fetched, or one of them is known to be harmful.
        Unsupported: the policy cannot be enforced here.
        PlaceUnavailable: no sandbox can be created.
    """
    python = identify_interpreter(PYTHON)
    lock = await store.lock(wanted, python_version())
    if bad := find_known_bad(lock):
        raise SkillRefused(*bad)
    kept = store.find(lock, python)
    if kept is None:
        await prove(policy, watched=True)
        (wheels := work / "wheels").mkdir(mode=0o755)
        (unpacked := work / "unpacked").mkdir(mode=0o711)
        await store.fetch(lock, python_version(), wheels)
        made = await unpack_wheels(policy, wheels, copy_tools(work, PIP), unpacked)
        kept = store.store(made, lock, python)
    return kept
