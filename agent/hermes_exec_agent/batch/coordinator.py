"""The coordinator of an epoch: starts shards, settles what dead ones left, and ends when nothing is left to do."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError
from hermes_exec_agent.batch.claims import may_try
from hermes_exec_agent.batch.engine import ShardOrder, find_engine
from hermes_exec_agent.batch.formats.function_grading import find_check
from hermes_exec_agent.batch.run_folder import BEGUN, HANGS_S, HEARTBEAT_S, exists_now
from hermes_exec_agent.batch.run_state import RunState
from hermes_exec_agent.batch.settlement import Settlement
from hermes_exec_agent.batch.shard_log import ShardLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec_agent.batch.engine import Engine
    from hermes_exec_agent.batch.run_folder import Control, Epoch, RunFolder
    from hermes_exec_agent.batch.run_state import Only, Summary
    from hermes_exec_agent.batch.settings import RunSettings

_log = logging.getLogger("hermes_exec.batch")
_ROUND_S = 0.5
_SETTLE_S = 2.0
_RESUBMIT_S = 30.0
_END_S = 60.0
"""Seconds that shards may take to end what they run, when they are stopped."""
_DEATHS = 5
"""Shards that may end one after another without a result before the epoch ends."""

ALL_GRADED, SOME_NOT, CAPPED = 0, 1, 3
"""Exit codes."""


class Coordinator:
    """Runs one epoch of a run."""

    def __init__(self, run: RunFolder, settings: RunSettings, *, only: Only | None = None) -> None:
        """``settings`` are those of the run, or have other caps and limits; ``only`` chooses trials to do again."""
        self._run = run
        self._settings = settings
        self._only: Only | None = only
        self.state = RunState(run)
        self.stop: Control | None = None
        """How the epoch was stopped; None if it was not."""
        self.note = ""
        """Why it ended early, if not by a cap or a person."""
        self._stop_changed = asyncio.Event()
        self._stopped_at = 0.0
        self._count = 0
        self._deaths = 0
        self._results = 0
        self._checked = self._settled = self._submit_after = 0.0
        self._unsettled = 0
        """Attempts whose end was not proven yet."""
        self._has_submitted = False
        self._live: dict[str, int] = {}
        """The shards that run, each with its slots."""

    async def run_epoch(self, listener: Callable[[Summary], None]) -> int:
        """Run all trials that are left, and return the exit code; ``listener`` gets the progress.

        Raises:
            UsageError: another process runs trials of this run, or a copied file was changed.
            HermesError: the folder cannot be used.
        """
        await asyncio.to_thread(self._run.check_files)
        if check := self._settings.agent.check:
            await asyncio.to_thread(find_check, check, self._run.path / "scripts")
        epoch = self._run.begin_epoch(self._settings)
        folder = self._run.shard(f"c{epoch.number}")
        folder.mkdir(mode=0o700)
        engine = find_engine(self._settings.engine)(self._run, self._settings.engine_options)
        beating = asyncio.create_task(self._beat(epoch))
        try:
            with ShardLog(folder) as log:
                settlement = Settlement(self._run, self.state, log, epoch.number)
                if epoch.number > 1 and (end_earlier := getattr(engine, "end_earlier", None)) is not None:
                    await end_earlier()
                await self._settle_before(settlement, epoch, listener)
                self.state.full = ""  # that was the disk of an earlier command
                epoch = self._run.plan_epoch(epoch, self.state.find_todo(self._only))
                try:
                    await engine.open()
                    await self._supervise(epoch, engine, settlement, listener)
                finally:
                    await engine.close()
                    self._live.clear()
                    with contextlib.suppress(HermesError, OSError):
                        await self._settle_after(settlement)
        finally:
            beating.cancel()
            self._run.end_epoch(epoch.number)
        self.state.update()
        listener(self.state.summarize())
        return self.find_exit_code(epoch)

    def request_stop(self, word: Control) -> None:
        """Let the shards drain, or end what they run."""
        if self.stop != "end" or word == "end":
            self.stop = word
            self._stopped_at = time.monotonic()
            self._stop_changed.set()

    def find_exit_code(self, epoch: Epoch) -> int:
        """Return 0 if every trial is graded, 3 if a cap stopped one, and 1 otherwise."""
        if self.stop == "cap" or self._has_capped(epoch):
            return CAPPED
        graded = all(state.accepted and state.accepted["state"] == "graded" for state in self.state.trials.values())
        return ALL_GRADED if graded else SOME_NOT

    def _has_capped(self, epoch: Epoch) -> bool:
        """Whether a cap of the run stopped a trial in this epoch."""
        lasts = (state.last for state in self.state.trials.values() if state.accepted is None)
        return any(last and last["state"] == "capped" and last["epoch"] == epoch.number for last in lasts)

    async def _beat(self, epoch: Epoch) -> None:
        while True:
            await asyncio.to_thread(self._run.beat, self._run.path / "epochs" / f"{epoch.number}.heartbeat")
            await asyncio.sleep(HEARTBEAT_S)

    async def _settle_before(self, settlement: Settlement, epoch: Epoch, listener: Callable[[Summary], None]) -> None:
        """End what earlier epochs left, and wait until that is proven."""
        for number in range(1, epoch.number):
            if self._run.read_control(number) != "end":
                self._run.control(number, "end")
        self.state.update()
        while await settlement.settle():
            listener(self.state.summarize())
            if await self._wait_stop(_ROUND_S * 2):
                break

    async def _settle_after(self, settlement: Settlement) -> None:
        give_up = time.monotonic() + (_END_S if self.stop != "end" else _END_S / 4)
        while await settlement.settle() and time.monotonic() < give_up:  # noqa: ASYNC110  targets do not notify
            await asyncio.sleep(_ROUND_S)

    async def _wait_stop(self, limit_s: float) -> bool:
        """Wait until a stop is requested, at most ``limit_s`` seconds; return whether one was."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._stop_changed.wait()
        self._stop_changed.clear()
        return self.stop is not None

    async def _supervise(
        self, epoch: Epoch, engine: Engine, settlement: Settlement, listener: Callable[[Summary], None]
    ) -> None:
        said: Control | None = None
        used = self._run.seconds_used()
        began = time.monotonic()
        while True:
            wall_s = epoch.settings.caps.wall_s
            if wall_s is not None and used + time.monotonic() - began >= wall_s and self.stop in (None, "drain"):
                self.request_stop("cap")
            ordered = await asyncio.to_thread(self._run.read_control, epoch.number)
            if ordered is not None and ordered != said:  # by `batch cancel`
                self.request_stop(ordered)
            if self.stop is not None and self.stop != said:
                said = self.stop
                await self._cancel_waiting(engine)
                if not await self._write_control(epoch, said) and said != "drain":
                    return  # the engine ends the shards
            await asyncio.to_thread(self.state.update)
            await self._poll(engine, settlement)
            if self.state.full and self.stop is None:
                self.note = self.state.full
                self.request_stop("drain")
            if self.stop is None and self._has_capped(epoch):
                self.request_stop("drain")
            summary = self.state.summarize()
            listener(summary)
            self._track_progress(summary)
            if not self._live and (said is not None or not self._find_claimable(epoch)):
                return
            if self.stop is None:
                await self._submit(epoch, engine)
            elif self.stop != "drain" and time.monotonic() > self._stopped_at + _END_S:
                return
            await self._wait_stop(_ROUND_S)

    async def _write_control(self, epoch: Epoch, word: Control) -> bool:
        """Let the shards stop; return False if that cannot be written, as on a full disk, where they drain anyway."""
        try:
            await asyncio.to_thread(self._run.control, epoch.number, word)
        except OSError as error:
            self.note = self.note or f"{epoch.number}: its shards were not notified: {error.strerror}"
            return False
        return True

    def _track_progress(self, summary: Summary) -> None:
        if summary.attempts > self._results:
            self._results, self._deaths = summary.attempts, 0
        if self._deaths >= _DEATHS and self.stop is None:
            self.note = f"{self._deaths} shards ended one after another without a result; see output.txt of each"
            self.request_stop("drain")

    async def _poll(self, engine: Engine, settlement: Settlement) -> None:
        """Notice the shards that ended, and settle them; end those that hang."""
        running = set(await engine.poll())
        now = time.monotonic()
        if now - self._checked >= HEARTBEAT_S:
            self._checked = now
            hung = [id for id in running & self._live.keys() if self._is_hung(id)]
            with contextlib.suppress(HermesError):  # the engine does not answer: they are looked at again
                if hung:
                    await engine.cancel(hung)
                    running -= set(hung)
        ended = self._live.keys() - running
        for id in ended:
            del self._live[id]
            if not exists_now(self._run.shard(id) / "ended"):
                self._deaths += 1
        if ended:
            self.state.update()
        # What a shard of another machine left is settled once its lease is over, whatever the others do.
        is_due = self._unsettled and now - self._settled >= _SETTLE_S
        if ended or is_due or self._has_strays():
            self._settled = now
            self._unsettled = await settlement.settle(living=self._live.keys())

    def _is_hung(self, id: str) -> bool:
        return self._run.silence(self._run.shard(id) / "heartbeat") > HANGS_S

    def _has_strays(self) -> bool:
        """Whether an attempt is open although no shard runs."""
        return not self._live and any(state.is_running for state in self.state.trials.values())

    def _find_claimable(self, epoch: Epoch) -> int:
        """Return the number of trials that a shard could claim now, or that are still open."""
        count = 0
        for key, base in epoch.todo.items():
            state = self.state.trials[key]
            if state.claimed <= base:
                count += 1
            elif state.is_running:
                count += not self._live
            elif state.last is not None and not state.last.get("final"):
                retried = state.last["state"] in ("failed", "lost")
                unbegun = sum(number > base for number in state.unbegun)
                count += retried and may_try(epoch, state.claimed - base, unbegun)
        return count

    async def _submit(self, epoch: Epoch, engine: Engine) -> None:
        """Start shards for the trials that none of those that run will reach soon."""
        settings = epoch.settings
        free = settings.concurrency - sum(self._live.values())
        claimable = self._find_claimable(epoch)
        open_slots = sum(self._live.values()) - sum(state.is_running for state in self.state.trials.values())
        wanted = min(free, claimable - max(open_slots, 0))
        orders: list[ShardOrder] = []
        while wanted > 0 and len(self._live) + len(orders) < settings.shards:
            slots = min(-(-settings.concurrency // settings.shards), wanted)
            id = f"s{epoch.number}-{self._count}-{secrets.token_hex(3)}"
            orders.append(ShardOrder(id, epoch.number, self._count % settings.shards, slots))
            self._count += 1
            wanted -= slots
        if not orders or time.monotonic() < self._submit_after:
            return
        try:
            await engine.submit(orders)
        except HermesError as error:
            if not self._has_submitted:
                raise
            self._submit_after = time.monotonic() + _RESUBMIT_S
            _log.warning("no shard was started, and is tried again in %g s: %s", _RESUBMIT_S, error)
            return
        self._has_submitted = True
        self._live |= {order.id: order.slots for order in orders}

    async def _cancel_waiting(self, engine: Engine) -> None:
        """Cancel the shards that have not begun: they would wait in a queue, only to end at once."""
        waiting = [id for id in self._live if not (self._run.shard(id) / BEGUN).exists()]
        if waiting:
            with contextlib.suppress(HermesError):
                await engine.cancel(waiting)
