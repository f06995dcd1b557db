"""Several tickers on one file, each in a process of its own, that are killed at random moments; what they leave.

``python -m tests.rigs.tickers FOLDER BASE START SPEED SHARED`` is one ticker. Its clock shows ``BASE`` at the moment
``START`` of the machine's monotonic clock, and runs ``SPEED`` times as fast.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec_agent import database_files
from hermes_exec_agent.scheduler.delivery import send_delivery
from hermes_exec_agent.scheduler.job import JobSpec
from hermes_exec_agent.scheduler.jobs import add_job
from hermes_exec_agent.scheduler.slot import Slot
from hermes_exec_agent.scheduler.slots import RunResult
from hermes_exec_agent.scheduler.storage import CronStore
from hermes_exec_agent.scheduler.ticker import Ticker

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec_agent.scheduler.job import Job

ROOT = Path(__file__).parents[2]
TICKERS = 4
BASE = 1_793_000_000
_FINAL = ("completed", "failed", "skipped", "missed", "unknown")


@dataclass(frozen=True, slots=True)
class FastClock:
    """A clock that all processes share, and that runs faster than time."""

    base: float
    start: float
    speed: float

    def now(self) -> float:
        return self.base + (time.monotonic() - self.start) * self.speed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds / self.speed, 0.02))


class LateClock:
    """A clock after the end of it all."""

    def __init__(self, at: float) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0.01)


def leave_effect(folder: Path, slot: Slot) -> None:
    """Append the number of the row, which one write does as a whole."""
    handle = os.open(folder / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, f"{slot.id}\n".encode())
    os.close(handle)


async def serve(folder: Path, clock: FastClock | LateClock, *, once: bool = False) -> None:
    """Run one ticker."""

    async def work(job: Job, slot: Slot) -> RunResult:
        leave_effect(folder, slot)
        await asyncio.sleep(random.random() * 0.02)
        return RunResult("completed", f"text of {slot.id}")

    with CronStore(folder / "cron.sqlite") as store:
        ticker = Ticker(store, work, send_delivery, clock=clock)
        await (ticker.tick() if once else ticker.serve())


@contextmanager
def use_journal(*, shared: bool) -> Generator[None]:
    """Use meanwhile the journal for file systems that machines share, or that for local ones."""

    def answer(folder: Path, mounts: Path = Path()) -> bool:
        return shared

    before, database_files.is_shared = database_files.is_shared, answer
    try:
        yield
    finally:
        database_files.is_shared = before


@dataclass(slots=True)
class Found:
    """What tickers left."""

    states: Counter[str]
    slots: int
    amiss: list[str]


def kill_tickers(
    folder: Path, *, jobs: int, minutes: int, kills: int, seconds: float, seed: int, shared: bool
) -> Found:
    """Let four tickers work through the slots of so many minutes while so many of them are killed; return the rest."""
    with use_journal(shared=shared):
        spec = JobSpec(
            schedule="every 1m", command="true", late_s=600.0, overlap="queue", deliver=(f"file:{folder / 'report'}",)
        )
        with CronStore(folder / "cron.sqlite") as store:
            for number in range(jobs):
                add_job(store, spec, BASE, name=f"job-{number}")
        chance, speed = random.Random(seed), minutes * 60 / seconds
        start = time.monotonic()
        argv = [sys.executable, "-m", "tests.rigs.tickers", folder, BASE, start, speed, int(shared)]
        command = [str(each) for each in argv]
        with open(folder / "errors", "wb") as errors:
            living = [subprocess.Popen(command, cwd=ROOT, stderr=errors) for _ in range(TICKERS)]
            for _ in range(kills):
                time.sleep(chance.random() * 2 * seconds / kills)
                victim = living.pop(chance.randrange(TICKERS))
                victim.send_signal(signal.SIGKILL)
                victim.wait()
                living.append(subprocess.Popen(command, cwd=ROOT, stderr=errors))
            while time.monotonic() < start + seconds:
                time.sleep(0.1)
            for each in living:
                each.kill()
                each.wait()
        for later_s in (0, 120, 600, 7200):  # deliveries that were cut off are tried again later
            asyncio.run(serve(folder, LateClock(BASE + minutes * 60 + later_s), once=True))
        return look(folder, jobs, minutes)


def look(folder: Path, jobs: int, minutes: int) -> Found:
    """Return what is amiss: a slot without a row or with two, a run that was repeated, a delivery lost or doubled."""
    with CronStore(folder / "cron.sqlite") as store, store.transaction() as base:
        slots = [Slot.from_row(row) for row in base.execute("SELECT * FROM slots")]
        deliveries = [(row["state"], row["key"], row["slot"]) for row in base.execute("SELECT * FROM deliveries")]
    amiss = [f"slot {slot.id} is {slot.state}" for slot in slots if slot.state not in _FINAL]
    expected = {BASE + minute * 60 for minute in range(1, minutes + 1)}
    for job in range(1, jobs + 1):
        rows = [slot for slot in slots if slot.job == job and slot.cause == "schedule"]
        counted = Counter(moment for slot in rows for moment in range(slot.slot, slot.last + 60, 60))
        amiss += [f"job {job} has no row at {moment}" for moment in expected - set(counted)]
        amiss += [f"job {job} has {number} rows at {moment}" for moment, number in counted.items() if number > 1]
    effects = Counter(map(int, (folder / "effects").read_text().split()))
    for slot in slots:
        most, least = {"completed": (1, 1), "unknown": (1, 0)}.get(slot.state, (0, 0))
        if not least <= effects[slot.id] <= most:
            amiss.append(f"slot {slot.id}, {slot.state}, ran {effects[slot.id]} times")
    report = (folder / "report").read_text()
    sent = Counter(line.rpartition("[")[2].rstrip("]") for line in report.splitlines() if line.startswith("--- "))
    amiss += [f"delivery {key} is {state}" for state, key, _ in deliveries if state != "delivered"]
    amiss += [f"delivery {key} came {sent[key]} times" for _, key, _ in deliveries if sent[key] != 1]
    ran = {slot.id for slot in slots if slot.state in ("completed", "unknown")}
    amiss += [f"slot {id} has no delivery" for id in ran - {slot for _, _, slot in deliveries}]
    return Found(Counter(slot.state for slot in slots), jobs * minutes, amiss)


def main() -> None:
    """Run one ticker until it is killed."""
    folder, base, start, speed, shared = sys.argv[1:]
    with use_journal(shared=shared == "1"):
        asyncio.run(serve(Path(folder), FastClock(float(base), float(start), float(speed))))


if __name__ == "__main__":
    main()
