"""The leases of the terminals of one target: granted in fair order, within the target's limit.

``_pump`` makes every decision. It runs after each change and never waits: first it serves waiting callers from the
ready terminals, in fair order. For the remaining callers it opens terminals, or closes ready ones of other pools to
make room. The capacity that is then unused keeps pools warm.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec.errors import Closed, HermesError, PlaceUnavailable
from hermes_exec.pool.fair_queue import FairQueue
from hermes_exec.pool.idle_pool import IdlePool
from hermes_exec.pool.lease import Lease
from hermes_exec.pool.provisioner import Provisioner

if TYPE_CHECKING:
    from hermes_exec.pool.journal import Journal
    from hermes_exec.pool.options import Pool
    from hermes_exec.pool.pooled_terminal import PooledTerminal

_log = logging.getLogger("hermes_exec.pool")


@dataclass(eq=False, frozen=True, slots=True)
class _Waiter:
    stock: IdlePool
    key: str
    hold_s: float | None
    lease: asyncio.Future[Lease]


class Dispatcher:
    """The leases of the terminals of one target, and the queue of callers that wait for one."""

    def __init__(self, limit: int, journal: Journal) -> None:
        self.leases: set[Lease] = set()
        self._supply = Provisioner(
            limit, journal, changed=self._pump, waiting=self._waiting_for, refused=self._tell_next
        )
        self._queue = FairQueue[_Waiter]()
        self._closed = ""
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def idle_pools(self) -> dict[str, IdlePool]:
        """The ready and pending terminals of each pool, by the pool's name."""
        return self._supply.idle_pools

    def add_pool(self, profile: str, pool: Pool) -> None:
        """Add a pool to this target, and begin to fill it."""
        self.idle_pools[profile] = IdlePool(profile, pool)
        self._pump()

    async def acquire(self, profile: str, key: str, hold_s: float | None, wait_s: float | None) -> Lease:
        """Wait for a terminal; see ``Orchestrator.lease``."""
        if self._closed:
            raise Closed(self._closed)
        waiter = _Waiter(self.idle_pools[profile], key, hold_s, asyncio.get_running_loop().create_future())
        self._queue.add(key, waiter)
        self._pump()
        clock = asyncio.timeout(wait_s)
        try:
            async with clock:
                lease = await asyncio.shield(waiter.lease)
            if key:  # before the holder can leave a job, which the death of this program would leave without its key
                await self._note(lease, durable=False)
                self._supply.spawn(self._note(lease, durable=True))
        except BaseException:
            self._leave(waiter)
            if clock.expired():
                raise PlaceUnavailable(
                    f"no terminal of {profile!r} became free within {wait_s:g} s",
                    remedy=f"wait longer, or allow more than {self._supply.limit} terminals there",
                ) from None
            raise
        return lease

    def _leave(self, waiter: _Waiter) -> None:
        """Remove a caller that stopped waiting; a lease that it was granted at the last moment is given back."""
        self._queue.discard(waiter.key, waiter)
        if waiter.lease.done() and waiter.lease.exception() is None:
            self.give_back(waiter.lease.result())
        waiter.lease.cancel()
        self._pump()

    def adopt(self, member: PooledTerminal, key: str) -> Lease:
        """Count a terminal that was taken over from a dead orchestrator, and lease it to ``key``."""
        self._supply.count += 1
        return self._hand_out(member, key, None)

    def give_back(self, lease: Lease) -> None:
        """Reset the terminal for the next caller, or close it, in the background."""
        if lease in self.leases:
            self._let_go(lease, "it was released")
            self._supply.recycle(self.idle_pools[lease.profile], lease.member)

    def revoke(self, lease: Lease, why: str) -> None:
        """End a lease and stop everything that runs on its terminal."""
        if lease in self.leases:
            self._let_go(lease, why)
            self._supply.close(lease.member)

    def replace(self, stock: IdlePool, member: PooledTerminal) -> None:
        """Close an unhealthy ready terminal; another one is opened instead."""
        stock.ready.remove(member)
        self._supply.close(member)
        self._pump()

    async def drain(self, limit_s: float) -> int:
        """Grant no more leases, wait for those that are held, then end them; return how many were cut short."""
        self._closed = self._closed or "the orchestrator closes"
        for waiter in self._queue:
            self._queue.discard(waiter.key, waiter)
            waiter.lease.set_exception(Closed(self._closed))
        self._supply.stop()
        left: list[Lease] = []
        try:
            async with asyncio.timeout(limit_s):
                await self._quiet.wait()
        except TimeoutError:
            pass
        finally:
            left += self.leases
            for lease in left:
                self.revoke(lease, self._closed)
        await self._supply.join()
        return len(left)

    def _pump(self) -> None:
        for waiter in self._queue:
            member = self._supply.take(waiter.stock)
            if member is not None:
                self._queue.serve(waiter.key, waiter)
                waiter.lease.set_result(self._hand_out(member, waiter.key, waiter.hold_s))
        waiting = Counter[IdlePool]()
        promised = 0
        for waiter in self._queue:
            waiting[waiter.stock] += 1
            if waiting[waiter.stock] <= waiter.stock.pending or self._supply.open(waiter.stock):
                continue
            if promised >= self._supply.closing and not self._supply.evict_idle():
                return
            promised += 1  # it takes the room of a terminal that is being closed
        if not self._closed and not promised:
            self._supply.refill(waiting)

    def _waiting_for(self, stock: IdlePool) -> int:
        return sum(waiter.stock is stock for waiter in self._queue)

    def _tell_next(self, stock: IdlePool, error: Exception) -> bool:
        """Raise ``error`` in the next caller that waits for this pool; return False when no caller waits."""
        waiter = next((waiter for waiter in self._queue if waiter.stock is stock), None)
        if waiter is None:
            return False
        self._queue.serve(waiter.key, waiter)
        waiter.lease.set_exception(error)
        return True

    def _hand_out(self, member: PooledTerminal, key: str, hold_s: float | None) -> Lease:
        hold_s = member.pool.hold_s if hold_s is None else hold_s
        lease = Lease(member, key, hold_s, give_back=self.give_back, revoke=self.revoke)
        self.leases.add(lease)
        self._quiet.clear()
        return lease

    def _let_go(self, lease: Lease, why: str) -> None:
        self.leases.discard(lease)
        lease.member.revoke()
        lease.end(why)
        if not self.leases:
            self._quiet.set()

    async def _note(self, lease: Lease, *, durable: bool) -> None:
        try:
            if lease in self.leases:
                await lease.member.record(key=lease.key, durable=durable)
        except HermesError as error:
            _log.warning("%s", error)
