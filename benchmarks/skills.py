"""What a call of a registered skill costs: in a new sandbox beside a bare bwrap, and in one that was kept ready."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from pathlib import Path

from benchmarks.figures import Figure, median, spent_async
from benchmarks.floors import held_sandbox
from benchmarks.sandbox import bare
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_agent.skills.run import runner as running
from hermes_exec_agent.skills.run.warm import WarmRunner
from tests.rigs.skill_makers import home_in, registered

_SKILL, _ARGUMENTS = "add-numbers", {"a": 1, "b": 2}
_POOL_MS = 10.0
"""What a call from the pool may take on a quiet machine."""
_FIRST = 3
"""Calls that load what is loaded once."""


async def _cold(registry: Registry, rounds: int) -> list[Figure]:
    async def call() -> None:
        await running.run(registry, _SKILL, _ARGUMENTS)

    ours: list[float] = []
    theirs: list[float] = []
    floor: list[float] = []
    for _ in range(rounds + _FIRST):
        theirs.append(await spent_async(bare))
        floor.append(await spent_async(held_sandbox))
        ours.append(await spent_async(call))
    took, started, held = (median(times[_FIRST:]) * 1e3 for times in (ours, theirs, floor))
    return [
        Figure("skill, cold call", "ms", took, "bare bwrap, `python3 -c pass`", started, 1.2),
        Figure("skill, cold call", "ms", took, "floor: bare bwrap, a Python that forks and waits", held),
    ]


async def _warm(registry: Registry, rounds: int) -> list[Figure]:
    wall: list[float] = []
    own: list[float] = []
    async with WarmRunner(registry, ready=1) as runner:
        await runner.prepare(_SKILL)
        for _ in range(rounds + _FIRST):
            await runner.wait_until_filled()
            before = time.process_time()
            wall.append(await spent_async(lambda: runner.run(_SKILL, _ARGUMENTS)))
            own.append(time.process_time() - before)
    return [
        Figure("skill, call from the pool", "ms", median(wall[_FIRST:]) * 1e3, "asked for", _POOL_MS, 1.0),
        Figure("skill, call from the pool, our CPU", "ms", median(own[_FIRST:]) * 1e3, "asked for", _POOL_MS, 1.0),
    ]


async def _measured(rounds: int) -> list[Figure]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        os.chmod(made, 0o700)  # noqa: PTH101  a registry is nobody else's
        home = home_in(Path(made))
        registered(home, Path(made) / "source")
        registry = Registry(home)
        return [*await _cold(registry, rounds), *await _warm(registry, rounds)]


def figures(rounds: int) -> list[Figure]:
    """Nothing where there is no bwrap."""
    return asyncio.run(_measured(rounds)) if shutil.which("bwrap") else []
