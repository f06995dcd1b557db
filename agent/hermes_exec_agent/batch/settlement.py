"""Settle what dead shards left: each open attempt is ended and recorded as lost, or waits until that is proven."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError
from hermes_exec_agent.batch.ledger import read_caps, settle_shard
from hermes_exec_agent.batch.places import end_place
from hermes_exec_agent.batch.run_folder import BEGUN, PREPAID, UNBEGUN
from hermes_exec_agent.batch.shard_log import LogTail

if TYPE_CHECKING:
    from collections.abc import Collection

    from hermes_exec_agent.batch.run_folder import RunFolder
    from hermes_exec_agent.batch.run_state import RunState
    from hermes_exec_agent.batch.shard_log import ShardLog

_AT_ONCE = 16
"""Targets that are ended at once."""


class Settlement:
    """Settles the attempts of shards that have ended."""

    def __init__(self, run: RunFolder, state: RunState, log: ShardLog, epoch: int) -> None:
        """``log`` is that of the coordinator of ``epoch``."""
        self._run = run
        self._state = state
        self._log = log
        self._epoch = epoch
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._accounts: set[str] = set()
        """Shards whose grants are returned."""

    async def settle(self, *, living: Collection[str] = ()) -> int:
        """Settle all open attempts but those of the shards ``living``; return how many stay open.

        An attempt stays open while its shard or its target may still run; the next call checks it again.
        """
        await asyncio.to_thread(self._state.reconcile)
        held = await asyncio.to_thread(self._find_open, living)
        left = await asyncio.gather(*(self._settle_shard(shard, attempts) for shard, attempts in held.items()))
        await asyncio.to_thread(self._return_grants, living)
        return sum(left)

    def _return_grants(self, living: Collection[str]) -> None:
        caps = read_caps(self._run.settings.caps)
        for shard in self._list_shards():
            if shard not in living and shard not in self._accounts and self._is_over(shard):
                settle_shard(self._run, shard, caps)
                self._accounts.add(shard)

    def _is_over(self, shard: str) -> bool:
        """Whether a shard has ended, also one of another machine that has been silent for longer than its lease."""
        over = self._run.is_shard_over(shard)
        return over or (over is None and self._run.is_lease_over(shard, self._run.settings.lease_s))

    def _list_shards(self) -> list[str]:
        folders = (self._run.path / "shards").iterdir()
        return [path.name for path in folders if (path / "owner.json").exists() or (path / PREPAID).exists()]

    def _find_open(self, living: Collection[str]) -> dict[str, list[tuple[str, int]]]:
        """Return the attempts without a result, by shard."""
        held: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        for key, state in self._state.trials.items():
            if state.is_running:
                shard = str(self._run.read_claim(key, state.claimed)["shard"])
                if shard not in living:
                    held[shard].append((key, state.claimed))
        return held

    async def _settle_shard(self, shard: str, attempts: list[tuple[str, int]]) -> int:
        over = await asyncio.to_thread(self._is_shard_over, shard, attempts[0])
        lease_over = await asyncio.to_thread(self._run.is_lease_over, shard, self._run.settings.lease_s)
        if over is False:
            await asyncio.to_thread(self._run.kill_hung_shard, shard)
        if over is False or (over is None and not lease_over):
            return len(attempts)
        places, running = await asyncio.to_thread(self._read_log, shard)
        folder = self._run.shard(shard)
        if (folder / PREPAID).exists():  # its log names no targets
            # Its log is whole if it ended by itself; otherwise any attempt may have begun since the last copy.
            begun = set(attempts) if (folder / BEGUN).exists() else set[tuple[str, int]]()
            begun &= running if (folder / "ended").exists() else begun
            done = [
                await self._settle_remote(each, has_begun=each in begun, lease_over=lease_over) for each in attempts
            ]
        else:
            how = "before its target ran anything"
            done = await asyncio.gather(
                *(self._settle_attempt(each, places.get(each, []), how, lease_over=lease_over) for each in attempts)
            )
        return done.count(False)

    def _is_shard_over(self, shard: str, attempt: tuple[str, int]) -> bool | None:
        """Whether a shard has ended, or has not begun before its command ended, after which it does not begin."""
        folder = self._run.shard(shard)
        is_unbegun = (folder / PREPAID).exists() and not (folder / BEGUN).exists()
        if is_unbegun and self._run.read_claim(*attempt)["epoch"] < self._epoch:
            return True
        return self._run.is_shard_over(shard)

    async def _settle_remote(self, attempt: tuple[str, int], *, has_begun: bool, lease_over: bool) -> bool:
        """Record an attempt of a sandbox as lost once it is proven over; return whether it was.

        A target of its own may outlive the sandbox by its lease.
        """
        if not has_begun:
            return await self._record(attempt, "its shard ended; it had not begun", unbegun=True)
        how = "its machine has ended"
        if self._run.find_trial(attempt[0]).target != "local":
            if not lease_over:
                return False
            how = "the lease of its target is over"
        return await self._record(attempt, f"its shard ended; {how}")

    def _read_log(self, shard: str) -> tuple[dict[tuple[str, int], list[dict[str, Any]]], set[tuple[str, int]]]:
        """Return the targets of each attempt, of which a separate verifier is one more, and the attempts that began."""
        found: defaultdict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        running: set[tuple[str, int]] = set()
        for event in LogTail(self._run.shard(shard), "place", "running").read():
            attempt = event["key"], event["attempt"]
            if event["event"] == "place":
                found[attempt].append(event["record"])
            else:
                running.add(attempt)
        return found, running

    async def _settle_attempt(
        self, attempt: tuple[str, int], places: list[dict[str, Any]], how: str, *, lease_over: bool
    ) -> bool:
        """Record an attempt as lost once it is proven over; return whether it was.

        ``how`` says how it ended if it has no target.
        """
        for place in places:
            async with self._slots:
                how = await end_place(place)
            if not how and not lease_over:
                return False
            how = f"its target was {how}" if how else "the lease of its target is over"
        return await self._record(attempt, f"its shard ended; {how}")

    async def _record(self, attempt: tuple[str, int], reason: str, *, unbegun: bool = False) -> bool:
        """Record an attempt as lost; return whether that could be written."""
        key, number = attempt
        record = create_end(self._run, key, number, "lost", "infrastructure", reason, epoch=self._epoch, shard="")
        record |= {UNBEGUN: True} if unbegun else {}
        try:
            accepted = await asyncio.to_thread(self._run.write_result, key, number, record)
        except HermesError:
            return False
        if accepted:
            self._log.write("ended_attempt", **record)
        await asyncio.to_thread(self._state.update)
        return True


def create_end(
    run: RunFolder, key: str, number: int, state: str, failure: str | None, reason: str, *, epoch: int, shard: str
) -> dict[str, Any]:
    """Return the result of an attempt whose shard cannot write it, or never began it."""
    trial = run.find_trial(key)
    return {
        "key": key, "attempt": number, "task": trial.task.id, "target": trial.target, "model": trial.model,
        "sample": trial.sample, "state": state, "failure": failure, "reason": reason, "reward": None, "check": None,
        "outcome": "", "steps": 0, "calls": 0, "conversation": f"{key}.{number}", "usage": None, "began": None,
        "seconds": None, "shard": shard, "epoch": epoch, "final": False, "settled": round(time.time(), 3),
    }  # fmt: skip
