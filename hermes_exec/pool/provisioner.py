"""The terminals of one target: opened, reset and closed in the background, within the target's limit."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from hermes_exec.pool.pooled_terminal import PooledTerminal

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Coroutine

    from hermes_exec.pool.idle_pool import IdlePool
    from hermes_exec.pool.journal import Journal

_log = logging.getLogger("hermes_exec.pool")
_OPENINGS = 16
"""Terminals that are opened at the same time: more would slow each other down, and reach their time limits."""


class Provisioner:
    """All terminals of one target, leased or ready. Calls ``changed`` after every change."""

    def __init__(
        self,
        limit: int,
        journal: Journal,
        *,
        changed: Callable[[], None],
        waiting: Callable[[IdlePool], int],
        refused: Callable[[IdlePool, Exception], bool],
    ) -> None:
        self.limit = limit
        self.count = 0
        """Terminals that are being opened, open, or being closed."""
        self.closing = 0
        """Those of them that are being closed."""
        self.idle_pools: dict[str, IdlePool] = {}
        self.stopped = False
        self._journal = journal
        self._changed = changed
        self._waiting = waiting
        self._refused = refused
        self._turns = asyncio.Semaphore(_OPENINGS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._openings: set[asyncio.Task[None]] = set()

    def take(self, stock: IdlePool) -> PooledTerminal | None:
        """Remove and return the terminal that has been ready longest; None if there is none."""
        while stock.ready:
            member = stock.ready.popleft()
            if member.ready:
                return member
            self.close(member)
        return None

    def open(self, stock: IdlePool) -> bool:
        """Begin to open one more terminal; return False when the target's limit is reached."""
        if self.count >= self.limit:
            return False
        self.count += 1
        stock.pending += 1
        task = self.spawn(self._open(stock))
        self._openings.add(task)
        task.add_done_callback(self._openings.discard)
        return True

    def refill(self, waiting: Counter[IdlePool]) -> None:
        """Open the ready terminals that pools lack."""
        for stock in self.idle_pools.values():
            while not stock.backing_off and self._lacks(stock, waiting[stock]) and self.open(stock):
                pass

    def evict_idle(self) -> bool:
        """Close a ready terminal to make room for a pool that has none; return False when there is none to close."""
        for stock in self.idle_pools.values():
            if stock.ready:
                self.close(stock.ready.pop())
                return True
        return False

    def recycle(self, stock: IdlePool, member: PooledTerminal) -> None:
        """Reset a used terminal if its pool has a reset and wants one more; else close it."""
        if stock.pool.reset is None or self.stopped or not self._lacks(stock, self._waiting(stock)):
            self.close(member)
        else:
            stock.pending += 1
            self.spawn(self._clean(member, stock))

    def close(self, member: PooledTerminal) -> None:
        """Close a terminal in the background; it counts towards the limit until it is gone."""
        self.closing += 1
        self.spawn(self._close(member))

    def stop(self) -> None:
        """Open nothing more, and close the ready terminals. Leased ones stay open."""
        self.stopped = True
        for opening in self._openings:
            opening.cancel()
        for stock in self.idle_pools.values():
            while stock.ready:
                self.close(stock.ready.popleft())

    async def join(self) -> None:
        """Wait until all work in the background has ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Start work in the background, for which ``join`` waits."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _lacks(self, stock: IdlePool, waiting: int) -> bool:
        return len(stock.ready) + max(0, stock.pending - waiting) < stock.pool.warm

    async def _open(self, stock: IdlePool) -> None:
        try:
            async with self._turns:
                member = await PooledTerminal.open(stock.profile, stock.pool, self._journal)
        except BaseException as error:
            self.count -= 1
            stock.pending -= 1
            if not isinstance(error, Exception):
                raise
            self._handle_failure(stock, error)
        else:
            stock.pending -= 1
            stock.reset_backoff()
            self._store(stock, member)
        self._changed()

    async def _clean(self, member: PooledTerminal, stock: IdlePool) -> None:
        try:
            fresh = await member.renew()
        except Exception as error:  # noqa: BLE001  a reset may be a function of the caller
            _log.info("a terminal of %s is not used again: %s", stock.profile, error)
            stock.pending -= 1
            self.close(member)
        else:
            stock.pending -= 1
            self._store(stock, fresh)
        self._changed()

    def _store(self, stock: IdlePool, member: PooledTerminal) -> None:
        if not self.stopped and len(stock.ready) < max(stock.pool.warm, self._waiting(stock)):
            stock.ready.append(member)
        else:
            self.close(member)

    def _handle_failure(self, stock: IdlePool, error: Exception) -> None:
        told = self._refused(stock, error)
        if not told or stock.pool.warm:
            rest_s = stock.back_off()
            _log.warning("no terminal of %s for %g s: %s", stock.profile, rest_s, error)
            asyncio.get_running_loop().call_later(rest_s, self._end_rest, stock)

    def _end_rest(self, stock: IdlePool) -> None:
        stock.backing_off = False
        self._changed()

    async def _close(self, member: PooledTerminal) -> None:
        try:
            await member.close()
        finally:
            self.closing -= 1
            self.count -= 1
            self._changed()
