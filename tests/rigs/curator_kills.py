"""Run the curator in a child that is killed before or after a call that touches a disk; look at what is left.

``python -m tests.rigs.curator_kills FOLDER SEED DEATHS`` prints one JSON line for each death: the step, and what is
amiss after the next run. Half of the deaths are in the run that continues after the one before.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from hermes_exec.errors import HermesError
from tests.rigs.curator_library import PERSON, TEXT, Clock, Library
from tests.rigs.skill_kills import Counting, Death

_ARCHIVED = {"idle-one", "idle-two", "idle-three", "page-two"}
_EXEMPT = ("persons", "pinned")
_STATE = ("registry", "keys", "state")


def build(folder: Path, clock: Clock) -> Library:
    """A library with three skills to archive, two to merge, and some that are exempt."""
    library = Library(folder)
    library.registry.prepare()
    library.counter.read_uses(begin=True)
    for name in ("idle-one", "idle-two", "idle-three", "pinned"):
        library.add(name)
    library.add("persons", PERSON)
    library.registry.pin("pinned")
    clock.pass_days(100)
    library.add("page-one", text=TEXT, about="About the page.")
    library.add("page-two", text=f"{TEXT}\n\nMore.", about="About the page.")
    return library


def die_curating(folder: Path, step: int) -> bool:
    """Run the curator in a child that dies at a step; whether it died."""
    child = os.fork()
    if not child:
        library = Library(folder)
        curator = library.curator()
        sys.setprofile(Death(step))
        asyncio.run(curator.run(apply=True))
        sys.setprofile(None)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def count_steps(folder: Path) -> int:
    """The steps of a run that nothing interrupts, in a child."""
    reading, writing = os.pipe()
    if not os.fork():
        curator, counting = Library(folder).curator(), Counting()
        sys.setprofile(counting)
        asyncio.run(curator.run(apply=True))
        sys.setprofile(None)
        os.write(writing, str(counting.steps).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        found = pipe.read()
    os.wait()
    return int(found)


def look(folder: Path, before: dict[str, Any]) -> list[str]:
    """Run the curator once more, and return what is amiss then."""
    library, amiss = Library(folder), list[str]()
    try:
        asyncio.run(library.curator().run(apply=True))
        after = library.states()
        registry = library.registry
        for name, state in before.items():
            if not after[name][3].items() >= state[3].items() or (name in _EXEMPT and after[name] != state):
                amiss.append(f"{name} was changed")
            archives = [each for each in registry.skill(name).history if each.kind == "archived"]
            if len(archives) != (name in _ARCHIVED):
                amiss.append(f"{name} was archived {len(archives)} times")
            for number in registry.skill(name).versions:
                registry.verify(registry.version(name, number))
        if sorted(registry.skill("page-one").versions) != [1, 2]:
            amiss.append("it was not merged once")
        counted = Counter(
            each.get("name") or each["drop"] for what in ("archived", "merged") for each in library.events(what)
        )
        if counted != Counter(_ARCHIVED):
            amiss.append(f"recorded: {dict(counted)}")
        amiss += [f"a run is not finished: {each}" for each in _find_unfinished(library)]
        undone = {name for run in _list_runs(library) for name in library.curator().restore(run).restored}
        if undone != {*_ARCHIVED, "page-one"} or {n: s[:3] for n, s in library.states().items() if s[2]}:
            amiss.append(f"restored: {sorted(undone)}")
    except HermesError as error:
        amiss.append(str(error))
    return amiss


def _find_unfinished(library: Library) -> set[str]:
    return {each["run"] for each in library.events("started")} - {each["run"] for each in library.events("finished")}


def _list_runs(library: Library) -> list[str]:
    return sorted({each["run"] for what in ("archived", "merged") for each in library.events(what)})


def main(work: Path, seed: int, deaths: int) -> None:
    """Die at random steps, once or several times in a row."""
    clock, chance = Clock(), random.Random(seed)
    setattr(time, "time", clock)  # noqa: B010  of this process and its children
    now, kept = work / "now", work / "kept"
    build(now, clock).log.close()
    before = Library(now).states()
    shutil.copytree(now, kept)
    steps = count_steps(now)
    left = deaths
    while left > 0:
        for name in _STATE:
            shutil.rmtree(now / name, ignore_errors=True)
            if (kept / name).exists():
                shutil.copytree(kept / name, now / name)
        died: list[int] = []
        for _ in range(chance.choice((1, 2))):
            step = chance.randint(1, steps)
            if die_curating(now, step):
                died.append(step)
                left -= 1
        print(json.dumps({"steps": steps, "died": died, "amiss": look(now, before)}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
