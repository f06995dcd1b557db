"""The orchestrator: keeps terminals warm, leases them fairly, checks their health, and recovers them after a crash."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

from hermes_exec._arguments import check_calls
from hermes_exec._async import awaitable_context_manager
from hermes_exec.errors import Closed, OutcomeUnknown, UsageError
from hermes_exec.pool.dispatcher import Dispatcher
from hermes_exec.pool.journal import Journal, run_in_thread
from hermes_exec.pool.options import Pool
from hermes_exec.pool.pooled_terminal import Health, PooledTerminal
from hermes_exec.pool.recovery import AttachedGuest, Fate, Recovered, recover

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping
    from types import TracebackType

    from hermes_exec.pool.idle_pool import IdlePool
    from hermes_exec.pool.journal import JournalEntry
    from hermes_exec.pool.lease import Lease
    from hermes_exec.terminal.terminal import Terminal


_LONGEST_KEY = 256


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """The terminals of one pool at one moment, by state."""

    ready: int
    """Open and not leased."""
    coming: int
    """Being opened, or reset for another use."""
    held: int
    """Leased."""


@check_calls
class Orchestrator:
    """Hands out terminals: ``async with orchestrator.terminal("build", key="alice") as terminal``.

    Use it with ``async with``, on one event loop. Each terminal is had by one caller alone; what it was used
    for is gone before another caller gets the target.
    """

    def __init__(
        self,
        pools: Mapping[str, Pool | str] | None = None,
        *,
        limits: Mapping[str, int] | None = None,
        limit: int = 64,
        check_every_s: float = 30.0,
        check_limit_s: float = 10.0,
        recover: Literal["attach", "reap", "leave"] = "attach",
    ) -> None:
        """Prepare it; nothing is opened before ``start``.

        Args:
            pools: what each profile's name stands for: a Pool, or a target. A name that is not in here is
                itself taken as a profile of the configuration, or as a target.
            limits: the most terminals of each target (``Pool.place``, or the target).
            limit: the same for targets that are not in there.
            check_every_s: seconds between two looks at every terminal.
            check_limit_s: seconds within which a terminal must answer, twice missed, to count as well.
            recover: what is done about terminals of orchestrators that died: ``attach`` ends what they ran
                except jobs, and gives those that have jobs in ``recovered``; ``reap`` leaves the jobs to
                `hermes-exec jobs`; ``leave`` touches nothing.

        Raises:
            UsageError: a number is out of range.
        """
        self.recovered: list[Recovered] = []
        """The terminals that dead orchestrators had left when this one started."""
        self._pools = {name: _pool(pool) for name, pool in (pools or {}).items()}
        self._limits = dict(limits or {})
        self._limit = limit
        if min(check_every_s, check_limit_s) <= 0 or min([limit, *self._limits.values()]) < 1:
            raise UsageError("a limit or a time that is not more than 0", remedy="give more, or leave it out")
        self._check_every_s, self._check_limit_s = check_every_s, check_limit_s
        self._recover: Literal["attach", "reap", "leave"] = recover
        self._journal = Journal()
        self._places: dict[str, Dispatcher] = {}
        self._checking: asyncio.Task[None] | None = None
        self._state: Literal["new", "open", "closed"] = "new"

    def __repr__(self) -> str:
        """Return its state and the names of its pools."""
        return f"<Orchestrator {self._state}, pools: {', '.join(self._pools) or 'none'}>"

    async def start(self) -> None:
        """Settle what dead orchestrators left, then begin to fill the pools, which is not waited for.

        A target that is out of reach delays it by 20 s at most.

        Raises:
            ConfigError: no record can be kept; nothing was opened.
        """
        if self._state != "new":
            raise UsageError("an orchestrator is started once", remedy="make a new one")
        await run_in_thread(self._journal.begin)
        self._state = "open"
        try:
            if self._recover != "leave":
                claimed = await asyncio.to_thread(self._journal.claim)
                self.recovered = list(await asyncio.gather(*map(self._settle, claimed)))
        except BaseException:
            await self.close()
            raise
        for name in list(self._pools):
            self._place(name)
        self._checking = asyncio.get_running_loop().create_task(self._check())

    async def _settle(self, entry: JournalEntry) -> Recovered:
        pool = self._pool_of(entry)
        found = await recover(entry, pool, attach=self._recover == "attach")
        if isinstance(found, AttachedGuest):
            member = await PooledTerminal.adopt(pool, found.plan, found.link, self._journal, entry)
            lease = self._place(entry.profile, pool).adopt(member, entry.key)
            return Recovered(entry.profile, entry.key, entry.target, Fate.ATTACHED, found.jobs, lease)
        if found.fate is not Fate.UNREACHABLE:
            await run_in_thread(self._journal.remove, entry)
        return found

    def _pool_of(self, entry: JournalEntry) -> Pool:
        """Return the pool of the entry's name as it is configured now, for the recorded target."""
        pool = self._pools.get(entry.profile, Pool())
        if callable(pool.target) and pool.target().target == entry.target:
            return pool
        return replace(pool, target=entry.target)

    @awaitable_context_manager
    async def lease(
        self, profile: str, *, key: str = "", hold_s: float | None = None, wait_s: float | None = None
    ) -> Lease:
        """Wait for a terminal of your own.

        Args:
            profile: the name of a pool, or of a profile, or a target.
            key: on whose behalf. Within a key, first come is first served; the keys take turns.
            hold_s: seconds after which it is closed, whatever runs on it; as the pool says if left out.
            wait_s: seconds to wait for it at most.

        Raises:
            PlaceUnavailable: none became free in time, or it cannot be opened; nothing ran.
            Closed: the orchestrator is not open.
        """
        if self._state != "open":
            raise Closed(f"the orchestrator is {self._state}", remedy="async with Orchestrator(…)")
        if len(key) > _LONGEST_KEY or not key.isprintable():
            raise UsageError("a key that is too long or not printable", remedy=f"up to {_LONGEST_KEY} characters")
        return await self._place(profile).acquire(profile, key, hold_s, wait_s)

    @contextlib.asynccontextmanager
    async def terminal(
        self, profile: str, *, key: str = "", hold_s: float | None = None, wait_s: float | None = None
    ) -> AsyncGenerator[Terminal]:
        """Have a terminal for the length of a ``async with``; arguments and errors are those of ``lease``."""
        async with self.lease(profile, key=key, hold_s=hold_s, wait_s=wait_s) as lease:
            yield lease.terminal

    def status(self) -> dict[str, PoolStatus]:
        """Return the status of each pool."""
        return {
            name: PoolStatus(len(stock.ready), stock.pending, sum(lease.profile == name for lease in place.leases))
            for place in self._places.values()
            for name, stock in place.idle_pools.items()
        }

    async def drain(self, timeout_s: float = 30.0) -> int:
        """Lease no further terminals, wait up to ``timeout_s`` for the leased ones, then close all.

        Callers that still wait get `Closed`. Commands that still run are stopped, and their results say so; jobs
        continue. Returns the number of leases that were cut short. Safe to call twice.
        """
        self._state = "closed"
        if self._checking is not None:
            self._checking.cancel()
        cut = await asyncio.gather(*(place.drain(timeout_s) for place in self._places.values()))
        await run_in_thread(self._journal.end)
        return sum(cut)

    async def close(self) -> None:
        """Stop what runs, but jobs, and close everything. Safe to call twice."""
        await self.drain(0)

    def _place(self, profile: str, pool: Pool | None = None) -> Dispatcher:
        pool = self._pools.setdefault(profile, pool or Pool(profile))
        name = pool.limit_key
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = Dispatcher(self._limits.get(name, self._limit), self._journal)
        if profile not in place.idle_pools:
            place.add_pool(profile, pool)
        return place

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(self._check_every_s)
            await check_all(list(self._places.values()), self._check_limit_s)

    async def __aenter__(self) -> Self:
        """Start it."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it; ``drain`` first where what is held shall come to its end."""
        await self.close()


def _pool(pool: Pool | str) -> Pool:
    return Pool(pool) if isinstance(pool, str) else pool


def _unknown() -> OutcomeUnknown:
    return OutcomeUnknown("the terminal was found unhealthy while this ran: it gave no answer")


async def check_all(places: Iterable[Dispatcher], limit_s: float) -> None:
    """Check all terminals at once; one that does not answer within ``limit_s`` is unhealthy."""
    looks = [
        _at_ready(place, stock, member, limit_s)
        for place in places
        for stock in place.idle_pools.values()
        for member in stock.ready
    ]
    looks += [_at_held(place, lease, limit_s) for place in places for lease in place.leases]
    await asyncio.gather(*looks)


async def _at_ready(place: Dispatcher, stock: IdlePool, member: PooledTerminal, limit_s: float) -> None:
    health = await member.check_health(limit_s)
    if health is not Health.HEALTHY and member in stock.ready:
        if health is Health.UNHEALTHY:
            member.mark_lost(_unknown())
        place.replace(stock, member)


async def _at_held(place: Dispatcher, lease: Lease, limit_s: float) -> None:
    if await lease.member.check_health(limit_s) is Health.UNHEALTHY and lease in place.leases:
        lease.member.mark_lost(_unknown())
        place.revoke(lease, "the terminal was found unhealthy")
