"""Remove unused files: packages of no skill that could run, and files that no version was registered with.

Versions are never removed. A skill that is restored from the archive gets its packages when it is proven again.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_exec_agent.skills.registry.registry import Registry

YOUNG_S = 86400.0
"""Packages that were requested since then may belong to a skill that is being validated."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """The removed files, by digest."""

    environments: tuple[str, ...]
    content: tuple[str, ...]


def collect(registry: Registry, *, older_s: float = YOUNG_S) -> Garbage:
    """Remove unused files; packages that were requested in the last ``older_s`` seconds stay.

    Raises:
        Refused: another program changed the registry; nothing was removed.
    """
    from hermes_exec_policies.gate.environments import Environments

    if not registry.home.folder.exists():
        return Garbage((), ())
    with registry.home.lock():
        skills = registry.skills()
        wanted = {
            registry.read_version(skill, number).environment
            for skill in skills.values()
            if not skill.archived
            for number in skill.versions
        }
        events = [event for skill in skills.values() for event in skill.history]
        known = {str(event.facts["digest"]) for event in events if "digest" in event.facts}
        kept = sorted(each.name for each in registry.home.content.glob("*") if not each.name.startswith("."))
        stray = [name for name in kept if name not in known]
        for name in stray:
            shutil.rmtree(registry.home.content / name)
        gone = Environments(registry.home.environments).collect_garbage(wanted, older_s=older_s)
    return Garbage(tuple(gone), tuple(stray))
