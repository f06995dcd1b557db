"""Many terminals: what opening and keeping each costs as they grow in number, and how soon a ready one is had."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.figures import Figure, median
from benchmarks.streaming import resident_kib
from hermes_exec import Orchestrator, Pool
from hermes_exec_backends.docker import DockerBackend
from tests.rigs.docker_engine import DEBIAN, Dockerd

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

COUNTS = (10, 50, 100)
HAND_OUT_MS = 5.0


def _below() -> list[int]:
    """The processes that are ours, or of our children, or of theirs."""
    found: list[int] = []
    left = [os.getpid()]
    while left:
        pid = left.pop()
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                left += [int(child) for child in task.read_text().split()]
            except OSError:
                continue
        found.append(pid)
    return found[1:]


def _place_kib() -> int:
    """What the processes of all terminals take, each page shared by several counted in parts (PSS)."""
    total = 0
    for pid in _below():
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += int(next(line for line in rollup.splitlines() if line.startswith("Pss:")).split()[1])
    return total


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def _many(count: int, pool: Pool, what: str = "terminals") -> list[Figure]:
    async with Orchestrator({"p": pool}, limit=count) as orchestrator:
        before = resident_kib("self"), _place_kib(), _descriptors()
        begin = time.perf_counter()
        leases = await asyncio.gather(*(orchestrator.lease("p", key=str(n)) for n in range(count)))
        opened = time.perf_counter() - begin
        after = resident_kib("self"), _place_kib(), _descriptors()
        begin = time.perf_counter()
        await asyncio.gather(*(lease.terminal.run(["/bin/true"]) for lease in leases))
        ran = time.perf_counter() - begin
        begin = time.perf_counter()
    closed = time.perf_counter() - begin
    ours, place, descriptors = ((now - then) / count for now, then in zip(after, before, strict=True))
    return [
        Figure(f"{count} {what}: to open one", "ms", opened / count * 1e3, "", 0),
        Figure(f"{count} {what}: first command in all", "ms each", ran / count * 1e3, "", 0),
        Figure(f"{count} {what}: to close one", "ms", closed / count * 1e3, "", 0),
        Figure(f"{count} {what}: our memory, each", "KiB", ours, "", 0),
        Figure(f"{count} {what}: its processes (PSS), each", "KiB", place, "", 0),
        Figure(f"{count} {what}: our descriptors, each", "", descriptors, "", 0),
    ]


async def _warm(rounds: int) -> list[Figure]:
    took: list[float] = []
    async with Orchestrator({"p": Pool("local", warm=2, audit=False)}) as orchestrator:
        for _ in range(rounds):
            while orchestrator.status()["p"].ready < 2:  # noqa: ASYNC110  a pool that fills sets no event
                await asyncio.sleep(0.01)
            begin = time.perf_counter()
            lease = await orchestrator.lease("p", key="somebody")
            took.append((time.perf_counter() - begin) * 1e3)
            await lease.release()
    return [
        Figure("a ready terminal handed out", "ms", median(took), "five milliseconds", HAND_OUT_MS, 1.0),
        Figure("… the slowest", "ms", max(took), "five milliseconds", HAND_OUT_MS, 1.0),
    ]


async def _all(rounds: int) -> list[Figure]:
    pool = Pool("local", audit=False)
    await _many(2, pool)  # what is loaded once is loaded now
    figures = await _warm(rounds)
    for count in COUNTS:
        figures += await _many(count, pool)
    return figures


async def _in_containers(engine: Dockerd) -> list[Figure]:
    pool = Pool(lambda: DockerBackend(engine.profile()), place="engine", audit=False)
    await _many(2, pool)
    figures: list[Figure] = []
    for count in COUNTS:
        # Nothing of a container is below us, so what its processes take is not seen from here.
        figures += [each for each in await _many(count, pool, "containers") if "PSS" not in each.name]
        engine.wait_until_none()
    return figures


def in_containers() -> list[Figure]:
    """10, 50 and 100 terminals at once, each in a container of its own; needs root and a dockerd to start."""
    engine = Dockerd()
    try:
        engine.image(DEBIAN)
        return _recorded(lambda: _in_containers(engine))
    finally:
        engine.remove()


def figures(rounds: int) -> list[Figure]:
    """Hand-out, then 10, 50 and 100 terminals at once."""
    return _recorded(lambda: _all(rounds))


def _recorded(measure: Callable[[], Coroutine[Any, Any, list[Figure]]]) -> list[Figure]:
    """Measure with a record in a folder of its own."""
    with tempfile.TemporaryDirectory() as state:
        before = os.environ.get("XDG_STATE_HOME")
        os.environ["XDG_STATE_HOME"] = state
        try:
            return asyncio.run(measure())
        finally:
            del os.environ["XDG_STATE_HOME"]
            if before is not None:
                os.environ["XDG_STATE_HOME"] = before
