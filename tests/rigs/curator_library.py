"""Libraries of small guides with a clock of their own, for tests of the curator."""

from __future__ import annotations

import os
import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec_agent.learning.curator import Curator
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.skills.registry.counts import RunCounter
from hermes_exec_agent.skills.registry.record import Origin
from hermes_exec_agent.skills.registry.registry import Registry
from tests.rigs.skill_makers import guide, home_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from hermes_exec_agent.skills.registry.record import Version

DAY_S = 86400.0
AGENT, PERSON, UNTRUSTED = Origin(kind="agent"), Origin(kind="person"), Origin(kind="untrusted")
IMPORTED = Origin(kind="imported", source="/somewhere", digest="0" * 64)
TEXT = "Build with make.\n\nCopy the folder to staging with rsync.\n\nLook at the page, and at the log of the server."
"""Long enough that two guides with it are alike."""


class Clock:
    """The time of this process, which a test moves."""

    def __init__(self) -> None:
        self._real = time.time
        self.offset_s = 0.0

    def __call__(self) -> float:
        return self._real() + self.offset_s

    def pass_days(self, days: float) -> None:
        self.offset_s += days * DAY_S


class Library:
    """A registry in a folder, with its counters and the event log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.home = home_in(folder)
        self.log = EventLog(folder / "state" / "conversations.sqlite")
        self.counter = RunCounter(self.home.counts)
        self._made = 0

    @cached_property
    def registry(self) -> Registry:
        """The registry as the agent's program sees it, which is not the curator's."""
        return Registry(self.home)

    def add(self, name: str, origin: Origin = AGENT, text: str = "", **more: Any) -> Version:
        self._made += 1
        text = text or f"Only {name} {name}-one {name}-two {name}-three {name}-four {self._made}."
        about = more.pop("about", f"About {name}.")
        return guide(self.home, self._room(), name, about, text, origin=origin, registry=self.registry, **more)

    def _room(self) -> Path:
        room = self.folder / f"made-{self._made}"
        room.mkdir()
        return room

    def use(self, name: str) -> None:
        self.counter.count_use(name)

    def curator(self, *, exempt: Collection[str] = (), tell: Callable[[str], None] | None = None) -> Curator:
        return Curator(Registry(self.home), self.log, exempt=exempt, **({"tell": tell} if tell else {}))

    def states(self) -> dict[str, Any]:
        """Of each skill: its current version, pin, archive, and the bytes of all versions."""
        return {
            name: (skill.current, skill.pinned, skill.archived, {
                number: self.bytes_of(event.facts["digest"]) for number, event in skill.versions.items()
            })
            for name, skill in self.registry.skills().items()
        }  # fmt: skip

    def bytes_of(self, digest: str) -> dict[str, bytes]:
        root = self.home.content / digest
        paths = [Path(here) / name for here, _, names in os.walk(root) for name in names]
        return {str(path.relative_to(root)): path.read_bytes() for path in paths}

    def archived(self) -> set[str]:
        return {name for name, skill in self.registry.skills().items() if skill.archived}

    def events(self, what: str) -> list[dict[str, Any]]:
        return [event.data for event in self.log.events("curator") if event.data["what"] == what]


def fast_folder(otherwise: Path) -> Path:
    """A folder in memory where there is one: thousands of small writes that last take minutes on a disk."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        return otherwise
    import tempfile

    return Path(tempfile.mkdtemp(prefix="hx-curator-", dir=shared))
