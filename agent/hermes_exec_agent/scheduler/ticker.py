"""A ticker: it records what is due, runs it, and delivers what it has to report.

Any number of tickers may work on one file at the same time, in any process of any machine. All that reads the time of
day takes a `Clock`, so that a test can set it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from hermes_exec._async import shield_to_completion
from hermes_exec.errors import HermesError, OutcomeUnknown, UsageError
from hermes_exec.pool.owner import Owner
from hermes_exec_agent.scheduler.holder import LEASE_S, format_holder
from hermes_exec_agent.scheduler.outbox import SEND_LIMIT_S, settle_delivery, take_delivery
from hermes_exec_agent.scheduler.recording import record_due
from hermes_exec_agent.scheduler.slot import Slot
from hermes_exec_agent.scheduler.slots import (
    RunResult,
    begin_slot,
    find_stops,
    finish_slot,
    insert_slot,
    list_open,
    read_job,
    renew_slots,
    take_slots,
)

if TYPE_CHECKING:
    from hermes_exec_agent.scheduler.job import Job
    from hermes_exec_agent.scheduler.outbox import Delivery
    from hermes_exec_agent.scheduler.storage import CronStore

T = TypeVar("T")
Run: TypeAlias = Callable[["Job", "Slot"], Awaitable[RunResult]]
"""Does what a job asks for. A `HermesError` is a failure; a cancelled run leaves nothing running."""
Send: TypeAlias = Callable[["Delivery"], Awaitable[None]]
"""Delivers a message. A `HermesError` is a failure, after which it is tried again, unless it is `OutcomeUnknown`."""
MOST = 4
"""Runs of one ticker at the same time."""
LOOK_S = 15.0
"""The longest time between two looks, in which another process may have added a job."""
_STOPS_S = 1.0
"""The time between two looks for runs that are to be ended."""
_ATTEMPTS, _PAUSE_S = 60, 5.0
"""Attempts of a ticker that ends to record a state, and the time between two."""
_SENDING = 4
"""Messages of one ticker that are sent at the same time."""
_GRACE_S = 30.0
_NEXT = {"failed": "given up", "unknown": "not sent again"}
"""What becomes of a message after an error, by its state."""
_log = logging.getLogger("hermes_exec.cron")


class Ticker:
    """One ticker. It belongs to one event loop."""

    def __init__(
        self,
        store: CronStore,
        run: Run,
        send: Send,
        *,
        clock: Clock | None = None,
        owner: Owner | None = None,
        most: int = MOST,
    ) -> None:
        """``most`` limits the runs at the same time; ``owner`` is the process that the rows of its runs name."""
        self._store = store
        self._do, self._send = run, send
        self._clock: Clock = clock or SystemClock()
        self._holder = format_holder(owner or Owner.current())
        self._most = most
        self._running: dict[asyncio.Task[RunResult | None], Slot] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._stopping: dict[int, str] = {}
        self._renewed = self._looked = 0.0
        self._is_ending = False
        self.ended: Counter[str] = Counter()
        """The runs of this ticker by the states in which they ended."""

    async def tick(self) -> int:
        """Record what is due, run it and deliver what waits, until nothing is left; return the number of runs.

        While something runs, slots that become due are recorded and run, too.
        """
        await self._serve(until_idle=True)
        return self.ended.total()

    async def serve(self) -> None:
        """Work as `tick` does until cancelled. Runs are then given half a minute to end, and are stopped."""
        await self._serve(until_idle=False)

    async def run_now(self, job: Job) -> Slot:
        """Run a job once now; return the slot of the run.

        Raises:
            UsageError: it waits for an approval, was removed, or runs already.
        """
        slot = await asyncio.to_thread(self._claim_now, job)
        task = self._start(job, slot)
        try:
            while not task.done():
                await asyncio.wait([task], timeout=_STOPS_S)
                await self._keep_leases()
        finally:
            await shield_to_completion(self._stop_all("the command was interrupted", 0.0), limit_s=None)
        await self._deliver(until_done=True)
        return await asyncio.to_thread(self._read, slot.id)

    def _claim_now(self, job: Job) -> Slot:
        now = self._clock.now()
        with self._store.transaction() as base:
            current = read_job(base, job.id)
            if current.state in ("waiting", "removed"):
                remedy = f"hermes-exec cron approve {job.name}" if current.state == "waiting" else "cron add"
                raise UsageError(f"the job {job.name!r} is {current.state}", remedy=remedy)
            if list_open(base, job.id):
                raise UsageError(f"the job {job.name!r} runs already", remedy=f"hermes-exec cron history {job.name}")
            return insert_slot(
                base, current, int(now), "claimed", now, cause="person", owner=self._holder, lease=now + LEASE_S,
            )  # fmt: skip

    def _read(self, id: int) -> Slot:
        with self._store.snapshot() as base:
            if base is None:
                raise HermesError("the file of the scheduler was removed meanwhile")
            return Slot.from_row(base.execute("SELECT * FROM slots WHERE id = ?", (id,)).fetchone())

    # The loop

    async def _serve(self, *, until_idle: bool) -> None:
        reason = "its ticker was stopped"
        try:
            while True:
                running = await self._work(until_idle=until_idle)
                if until_idle and not running:
                    return
                await self._wait(running)
        except asyncio.CancelledError:
            await shield_to_completion(self._stop_all(reason, _GRACE_S), limit_s=None)
            raise
        finally:
            await shield_to_completion(self._stop_all(reason, 0.0), limit_s=None)

    async def _work(self, *, until_idle: bool) -> int:
        """Record, start and deliver what is due now; return the number of runs that have not ended.

        Raises:
            HermesError: a tick could not use the file. Another ticker only logs it, and tries again.
        """
        try:
            await self._look()
            running = len(self._running)
            await self._deliver(until_done=until_idle and not running)
        except HermesError as error:
            running = len(self._running)
            if until_idle and not running:
                raise
            _log.warning("%s", error)
        return running

    async def _look(self) -> None:
        """Record what is due, and start what waits."""
        self._looked = self._clock.now()
        await asyncio.to_thread(record_due, self._store, self._looked, os.uname().nodename)
        room = self._most - len(self._running)
        taken = await asyncio.to_thread(take_slots, self._store, self._holder, self._clock.now(), room)
        for job, slot in taken:
            self._start(job, slot)

    def _start(self, job: Job, slot: Slot) -> asyncio.Task[RunResult | None]:
        task = asyncio.create_task(self._run(job, slot))
        self._running[task] = slot
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[RunResult | None]) -> None:
        slot = self._running.pop(task)
        self._stopping.pop(slot.id, None)
        if task.cancelled():
            return
        if error := task.exception():
            _log.error("the end of a run could not be recorded: %s", error)
        elif result := task.result():
            self.ended[result.state] += 1

    async def _wait(self, running: int) -> None:
        """Wait until one of so many runs has ended, or it is time to look again; renew the leases meanwhile."""
        pause = asyncio.create_task(self._clock.sleep(await asyncio.to_thread(self._find_pause)))
        try:
            while not pause.done() and len(self._running) >= running:
                await asyncio.wait([pause, *self._running], timeout=_STOPS_S, return_when=asyncio.FIRST_COMPLETED)
                await self._keep_leases()
        finally:
            pause.cancel()
            await asyncio.gather(pause, return_exceptions=True)

    def _find_pause(self) -> float:
        """Return the seconds until the next slot; those that were due at the look are recorded, or left to others."""
        query = "SELECT min(next) FROM jobs WHERE state = 'active' AND next > ?"
        try:
            with self._store.snapshot() as base:
                row = None if base is None else base.execute(query, (self._looked,)).fetchone()
        except HermesError:  # the next look reports it
            return LOOK_S
        until = row[0] - self._clock.now() if row is not None and row[0] is not None else LOOK_S
        return min(max(until, 0.05), LOOK_S)

    async def _keep_leases(self) -> None:
        """Renew the leases, and end the runs that have to end."""
        now = self._clock.now()
        if not self._running:
            return
        ids = [slot.id for slot in self._running.values()]
        try:
            if not 0 <= now - self._renewed < LEASE_S / 4:
                await asyncio.to_thread(renew_slots, self._store, self._holder, now)
                self._renewed = now
            stops = await asyncio.to_thread(find_stops, self._store, ids)
        except HermesError as error:
            _log.warning("%s", error)
            return
        for id, reason in stops.items():
            self._stop(id, reason)

    def _stop(self, id: int, reason: str) -> None:
        for task, slot in self._running.items():
            if slot.id == id and id not in self._stopping:
                self._stopping[id] = reason
                task.cancel()

    async def _stop_all(self, reason: str, grace_s: float) -> None:
        """Wait for runs and deliveries to end for a time, and stop the others."""
        self._is_ending = True
        tasks = [*self._running, *self._sending]
        if tasks and grace_s:
            await asyncio.wait(tasks, timeout=grace_s)
        for slot in list(self._running.values()):
            self._stop(slot.id, reason)
        for each in self._sending:
            each.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # A run

    async def _run(self, job: Job, slot: Slot) -> RunResult | None:
        """Run a slot, and record its end; return None if another ticker has it."""
        try:
            begun = await shield_to_completion(self._persist(partial(self._begin, slot)), limit_s=None)
        except asyncio.CancelledError:
            result: RunResult | None = self._interruption(slot)
        else:
            result = await self._attempt(job, slot) if begun else None
        if result is None:
            return None
        recording = self._persist(partial(finish_slot, self._store, slot, self._holder, result, self._clock.now()))
        return result if await shield_to_completion(recording, limit_s=None) else None

    def _begin(self, slot: Slot) -> bool:
        """Record that a run begins now, which may be long after the first attempt to record it."""
        return begin_slot(self._store, slot, self._holder, self._clock.now())

    async def _persist(self, change: Callable[[], T]) -> T:
        """Change the file; a full disk or another writer is waited for, as nothing else may be done before.

        Raises:
            HermesError: this ticker ends, and the file cannot be changed for minutes.
        """
        attempts = 0
        while True:
            try:
                return await asyncio.to_thread(change)
            except HermesError as error:
                attempts = attempts + 1 if self._is_ending else 0
                if attempts >= _ATTEMPTS:
                    raise
                _log.warning("the state of a run or of a delivery is not recorded yet: %s", error)
                await asyncio.sleep(_PAUSE_S)

    async def _attempt(self, job: Job, slot: Slot) -> RunResult:
        try:
            return await self._do(job, slot)
        except asyncio.CancelledError:
            return self._interruption(slot)
        except OutcomeUnknown as error:
            return RunResult("unknown", reason=str(error))
        except HermesError as error:
            return RunResult("failed", reason=str(error))
        except Exception as error:  # noqa: BLE001  a job must not end its ticker
            _log.exception("the run of %s", job.name)
            return RunResult("failed", reason=f"{type(error).__name__}: {error}")

    def _interruption(self, slot: Slot) -> RunResult:
        return RunResult("failed", reason=self._stopping.get(slot.id, "it was stopped"), counts=False)

    # Deliveries

    async def _deliver(self, *, until_done: bool) -> None:
        """Start to send messages that are due; with ``until_done`` send them all."""
        while True:
            while len(self._sending) < _SENDING and (delivery := await self._take_delivery()) is not None:
                task = asyncio.create_task(self._send_one(delivery))
                self._sending.add(task)
                task.add_done_callback(self._forget_sending)
            if not (until_done and self._sending):
                return
            await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED)

    def _forget_sending(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.error("the end of a delivery could not be recorded: %s", error)

    async def _take_delivery(self) -> Delivery | None:
        return await asyncio.to_thread(take_delivery, self._store, self._holder, self._clock.now())

    async def _send_one(self, delivery: Delivery) -> None:
        error, is_unknown = "", False
        try:
            async with asyncio.timeout(SEND_LIMIT_S):
                await self._send(delivery)
        except OutcomeUnknown as failure:
            error, is_unknown = str(failure), True
        except asyncio.CancelledError:
            error = "its ticker was stopped"
        except TimeoutError:
            error = f"not delivered within {SEND_LIMIT_S:g} s"
        except (HermesError, OSError) as failure:
            error = str(failure)
        except Exception as failure:  # noqa: BLE001  a delivery must not end its ticker
            _log.exception("the delivery to %s", delivery.address)
            error = f"{type(failure).__name__}: {failure}"
        now = self._clock.now()
        settling = partial(settle_delivery, self._store, delivery, self._holder, now, error, is_unknown=is_unknown)
        state = await shield_to_completion(self._persist(settling), limit_s=None)
        if error:
            _log.warning("%s: %s: %s", delivery.address, _NEXT.get(state, "tried again"), error)


class Clock(Protocol):
    """The time of day, and waits for a later one."""

    def now(self) -> float:
        """Return the seconds since 1970."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait so long."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> float:
        """Return the seconds since 1970."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Wait so long."""
        await asyncio.sleep(seconds)
