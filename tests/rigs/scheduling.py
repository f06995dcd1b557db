"""Parts of schedulers for tests: a clock that is set, jobs, and runs that record their effects."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from hermes_exec.pool.owner import Owner
from hermes_exec_agent.scheduler.job import JobSpec
from hermes_exec_agent.scheduler.jobs import add_job
from hermes_exec_agent.scheduler.slots import RunResult, list_slots
from hermes_exec_agent.scheduler.ticker import Ticker

if TYPE_CHECKING:
    from hermes_exec_agent.scheduler.job import Job
    from hermes_exec_agent.scheduler.outbox import Delivery
    from hermes_exec_agent.scheduler.slot import Slot
    from hermes_exec_agent.scheduler.storage import CronStore

ZONE = "Europe/Berlin"


def moment(text: str, zone: str = ZONE) -> float:
    """The seconds since 1970 of a time on the clocks of a zone."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


class SetClock:
    """A clock that stands still until it is set."""

    def __init__(self, text: str = "2026-11-02T07:00", zone: str = ZONE) -> None:
        self.zone = zone
        self.at = moment(text, zone)

    def now(self) -> float:
        return self.at

    def set(self, text: str) -> None:
        self.at = moment(text, self.zone)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0.005)


def spec(schedule: str, **fields: Any) -> JobSpec:
    """A job with a command."""
    return JobSpec.model_validate({"schedule": schedule, "zone": ZONE, "command": "true", **fields})


def elsewhere(pid: int = 1) -> Owner:
    """A process of another machine, which cannot be looked at from here."""
    return replace(Owner.current(), host="another-machine", pid=pid)


class Runs:
    """Runs that end at once, or wait for a release; each is recorded."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.results: list[RunResult] = []
        """The results of the next runs; afterwards each is completed."""
        self.hold = asyncio.Event()
        self.hold.set()
        self.has_begun = asyncio.Event()

    async def __call__(self, job: Job, slot: Slot) -> RunResult:
        self.begun.append(slot.slot)
        self.has_begun.set()
        await self.hold.wait()
        return self.results.pop(0) if self.results else RunResult("completed", "done")


class Mail:
    """A channel that keeps the messages, or fails."""

    def __init__(self) -> None:
        self.sent: list[Delivery] = []
        self.error: Exception | None = None

    async def __call__(self, delivery: Delivery) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append(delivery)


class Desk:
    """A store with a clock, runs and mail, and the tickers on it."""

    def __init__(self, store: CronStore, clock: SetClock | None = None) -> None:
        self.store = store
        self.clock = clock or SetClock()
        self.runs, self.mail = Runs(), Mail()

    def add(self, schedule: str, **fields: Any) -> Job:
        name = fields.pop("name", "job")
        return add_job(self.store, spec(schedule, deliver=("mail:me",), **fields), self.clock.now(), name=name)

    def ticker(self, owner: Owner | None = None, most: int = 4) -> Ticker:
        return Ticker(self.store, self.runs, self.mail, clock=self.clock, owner=owner, most=most)

    async def tick(self, at: str = "") -> None:
        if at:
            self.clock.set(at)
        await asyncio.wait_for(self.ticker().tick(), 20)

    def history(self) -> list[tuple[str, str]]:
        """The states of slots with their times, the oldest first."""
        return [(slot.state, self.show(slot.slot)) for slot in reversed(list_slots(self.store, limit=10_000))]

    def slots(self) -> list[Slot]:
        return list(reversed(list_slots(self.store, limit=10_000)))

    def show(self, at: float) -> str:
        return datetime.fromtimestamp(at, ZoneInfo(self.clock.zone)).strftime("%Y-%m-%dT%H:%M")


def effects(path: Path) -> list[str]:
    """The lines of a file."""
    return path.read_text().splitlines() if path.exists() else []
