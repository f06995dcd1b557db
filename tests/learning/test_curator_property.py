"""Random libraries, and an agent that registers, uses, pins, imports and archives while the curator runs.

The test keeps its own record of who wrote a skill and when it was used, and compares each outcome with it.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.rigs.breadth import examples
from tests.rigs.curator_library import AGENT, DAY_S, IMPORTED, PERSON, UNTRUSTED, Library, fast_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hermes_exec_agent.learning.curator import RunResult
    from tests.rigs.curator_library import Clock

_CASES = examples(2000)
_OF_A_LIBRARY = 8
"""Cases that one library goes through, which grows meanwhile."""
_SHARES = 4


@dataclass
class Known:
    """What the test knows of a skill."""

    agents: bool
    used: float
    pinned: bool = False
    archived: bool = False


@dataclass
class World:
    """A library, and what the test knows of it."""

    library: Library
    clock: Clock
    chance: random.Random
    known: dict[str, Known] = field(default_factory=dict[str, Known])
    touched: set[str] = field(default_factory=set[str])
    """Skills that the agent acted on since the run began."""
    spared: set[str] = field(default_factory=set[str])
    """Skills that were used or became exempt just before the run would have archived them."""

    def register(self) -> None:
        """Register a new skill, or a version of one that is there."""
        again = self.known and self.chance.random() < 0.3
        name = self.chance.choice(sorted(self.known)) if again else f"skill-{len(self.known)}"
        origin = self.chance.choices((AGENT, UNTRUSTED, PERSON, IMPORTED), (6, 1, 2, 1))[0]
        self.library.add(name, origin, f"{name} {self.chance.getrandbits(64):x} {self.chance.getrandbits(64):x}.")
        agents = origin in {AGENT, UNTRUSTED}
        before = self.known.get(name, Known(agents=True, used=0.0))
        before.agents, before.used = before.agents and agents, self.clock()
        if origin != UNTRUSTED and not before.pinned:
            before.archived = False
        self.known[name] = before
        self.touched.add(name)

    def act(self) -> None:
        """Do one thing that an agent or a person does."""
        kind = self.chance.choice(("register", "use", "use", "pin", "unpin", "archive", "restore"))
        if kind == "register" or not self.known:
            return self.register()
        name = self.chance.choice(sorted(self.known))
        known, registry = self.known[name], self.library.registry
        self.touched.add(name)
        match kind:
            case "use":
                self.library.use(name)
                known.used = self.clock()
            case "pin" if not known.pinned:
                registry.pin(name)
                known.pinned, known.used = True, self.clock()
            case "unpin" if known.pinned:
                registry.mark("unpinned", name)
                known.pinned, known.used = False, self.clock()
            case "archive" if not known.archived:
                registry.mark("archived", name)
                known.archived = True
            case "restore" if known.archived:
                registry.mark("restored", name)
                known.archived, known.used = False, self.clock()
            case _:
                pass
        return None

    def is_exempt(self, name: str) -> bool:
        known = self.known[name]
        return known.pinned or not known.agents or known.archived

    def run(self) -> RunResult:
        """Run the curator, with something of the agent before each of its changes."""
        self.touched.clear()
        self.spared.clear()

        def interrupt(line: str) -> None:
            if self.chance.random() < 0.5:
                self.act()
            name = line.split()[1].rstrip(":")
            if self.is_exempt(name) or self.clock() - self.known[name].used < 90 * DAY_S:
                self.spared.add(name)

        return asyncio.run(self.library.curator(tell=interrupt).run(apply=True))

    def case(self) -> None:
        for _ in range(self.chance.randint(1, 3)):
            self.register()
        self.clock.pass_days(self.chance.choice((1, 20, 50, 95)))
        for _ in range(self.chance.randint(0, 3)):
            self.act()
        before, counts = self.library.states(), self.library.counter.dump()
        exempt = {name for name in self.known if self.is_exempt(name)}
        unused = {
            name for name, known in self.known.items()
            if name not in exempt and self.clock() - known.used >= 90 * DAY_S
        }  # fmt: skip
        result = self.run()
        after = self.library.states()
        assert set(result.archived) <= unused - self.spared
        assert unused - self.touched <= set(result.archived)
        for name in exempt - self.touched:
            assert after[name] == before[name]
        for name, state in before.items():  # no byte of any version changes
            assert after[name][3].items() >= state[3].items()
        self.undo(result, before, after, counts)

    def undo(self, result: RunResult, before: dict[str, Any], after: dict[str, Any], counts: dict[str, Any]) -> None:
        """Sometimes undo the run: what it archived is as it was, and the rest as it is."""
        quiet = set(result.archived) - self.touched
        if not result.archived or self.chance.random() < 0.5:
            for name in quiet:
                self.known[name].archived = True
            self.settle(set(result.archived) & self.touched)
            return
        done = self.library.curator().restore(result.run)
        now = self.library.states()
        assert quiet <= set(done.restored)
        for name, state in now.items():
            assert state == (before[name] if name in quiet else after[name]) or name in self.touched
        for table, rows in counts.items():
            keys = {str(row[:2]) for row in self.library.counter.dump()[table]}
            assert {str(row[:2]) for row in rows} <= keys or self.touched
        if not self.touched:
            assert self.library.counter.dump() == counts
        for name in done.restored:
            self.known[name].used = self.clock()
        self.settle(self.touched)

    def settle(self, names: set[str]) -> None:
        """Take over the archive of skills that both acted on, in an order that the test does not know."""
        archived = self.library.archived()
        for name in names:
            self.known[name].archived = name in archived


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = fast_folder(tmp_path)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("share", range(_SHARES))
def test_exempt_skills_never_change_and_to_archive_and_restore_changes_nothing(
    folder: Path, clock: Clock, share: int
) -> None:
    chance = random.Random(share)
    archived = 0
    for number in range(_CASES // _SHARES // _OF_A_LIBRARY + 1):
        library = Library(folder / f"library-{number}")
        library.registry.prepare()
        library.counter.read_uses(begin=True)
        world = World(library, clock, chance)
        for _ in range(_OF_A_LIBRARY):
            world.case()
        archived += len(library.events("archived"))
        library.log.close()
        shutil.rmtree(library.folder)
    assert archived > _CASES // _SHARES // 2
