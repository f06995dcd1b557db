"""The person's skills as a measured conversation reads them: one of them is hidden, or fixed at a version.

Nothing can be written through it, and uses and runs are counted in a folder of the measurement alone.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hermes_exec.errors import Refused, UsageError
from hermes_exec_agent.skills.registry.home import RegistryHome, default_home
from hermes_exec_agent.skills.registry.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

    from hermes_exec_agent.skills.registry.record import Skill


@dataclass(frozen=True, slots=True)
class _MeasuredHome(RegistryHome):
    scratch: Path

    @property
    def counts(self) -> Path:
        """The database of runs of the measurement."""
        return self.scratch / "runs.sqlite"

    @property
    def descriptions(self) -> Path:
        """The descriptions that the measurement keeps."""
        return self.scratch / "descriptions.json"

    @contextlib.contextmanager
    def lock(self) -> Generator[None]:
        """Refuse to write.

        Raises:
            Refused: always.
        """
        raise Refused("a measurement changes no skill")
        yield


class MeasuredRegistry(Registry):
    """The registry of this user, for reading."""

    def __init__(self, scratch: Path, versions: Mapping[str, int]) -> None:
        """``versions`` are the current versions of some skills; a skill with version 0 is hidden."""
        home = default_home()
        super().__init__(_MeasuredHome(home.folder, home.keys, scratch))
        self._chosen = versions

    def skills(self) -> dict[str, Skill]:
        """Return every skill that is not hidden, by name.

        Raises:
            Refused: another program changed the registry.
        """
        skills = dict(super().skills())
        for name, number in self._chosen.items():
            skill = skills.pop(name, None)
            if skill is not None and number:
                skills[name] = replace(skill, current=number)
        return skills


def choose_version(name: str, number: int | None) -> tuple[str, int]:
    """Return the name of a skill that can be measured, and the number of its version.

    Raises:
        UsageError: there is no such skill or version, or no conversation can use it now.
    """
    registry = Registry()
    skill = registry.skill(name)
    version = registry.read_version(skill, number)
    if skill.archived or version.number in skill.kept_back:
        why = "archived" if skill.archived else f"kept back: {skill.kept_back[version.number]}"
        raise UsageError(f"{skill.name} {version.number} cannot be measured: it is {why}")
    return skill.name, version.number
