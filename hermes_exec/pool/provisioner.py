"""What is open in one place: opened, cleaned and closed in the background, never more than the place may have."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from hermes_exec.pool.pooled_terminal import Member

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Coroutine

    from hermes_exec.pool.idle_pool import Stock
    from hermes_exec.pool.journal import Journal

_log = logging.getLogger("hermes_exec.pool")
_OPENINGS = 16
"""How many are opened at the same moment: more would only be slower, each by itself and towards its time limit."""


class Supply:
    """The terminals of one place, whoever has them. Whenever something changed, ``changed`` is called."""

    def __init__(
        self,
        limit: int,
        journal: Journal,
        *,
        changed: Callable[[], None],
        waiting: Callable[[Stock], int],
        refused: Callable[[Stock, Exception], bool],
    ) -> None:
        self.limit = limit
        self.count = 0
        """Terminals that are being opened, open, or being closed."""
        self.closing = 0
        """Those of them that are being closed."""
        self.stocks: dict[str, Stock] = {}
        self.stopped = False
        self._journal = journal
        self._changed = changed
        self._waiting = waiting
        self._refused = refused
        self._turns = asyncio.Semaphore(_OPENINGS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._openings: set[asyncio.Task[None]] = set()

    def take(self, stock: Stock) -> Member | None:
        """The terminal that has been ready longest, if there is one."""
        while stock.ready:
            member = stock.ready.popleft()
            if member.ready:
                return member
            self.close(member)
        return None

    def open(self, stock: Stock) -> bool:
        """Open one more, unless the place is full."""
        if self.count >= self.limit:
            return False
        self.count += 1
        stock.coming += 1
        task = self.do(self._open(stock))
        self._openings.add(task)
        task.add_done_callback(self._openings.discard)
        return True

    def refill(self, waiting: Counter[Stock]) -> None:
        """Open ahead what pools lack."""
        for stock in self.stocks.values():
            while not stock.resting and self._lacks(stock, waiting[stock]) and self.open(stock):
                pass

    def give_way(self) -> bool:
        """Close a ready terminal, for the sake of a pool that has none; False when there is none to close."""
        for stock in self.stocks.values():
            if stock.ready:
                self.close(stock.ready.pop())
                return True
        return False

    def take_back(self, stock: Stock, member: Member) -> None:
        """Clean a used terminal if the pool allows it and wants one more; else close it."""
        if stock.pool.reset is None or self.stopped or not self._lacks(stock, self._waiting(stock)):
            self.close(member)
        else:
            stock.coming += 1
            self.do(self._clean(member, stock))

    def close(self, member: Member) -> None:
        """Close a terminal; until it is gone it counts."""
        self.closing += 1
        self.do(self._close(member))

    def stop(self) -> None:
        """Open nothing more, close what is ready. What was handed out is left alone."""
        self.stopped = True
        for opening in self._openings:
            opening.cancel()
        for stock in self.stocks.values():
            while stock.ready:
                self.close(stock.ready.popleft())

    async def over(self) -> None:
        """Return when nothing goes on in the background."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def do(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Work in the background, for which ``over`` waits."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _lacks(self, stock: Stock, waiting: int) -> bool:
        return len(stock.ready) + max(0, stock.coming - waiting) < stock.pool.warm

    async def _open(self, stock: Stock) -> None:
        try:
            async with self._turns:
                member = await Member.open(stock.profile, stock.pool, self._journal)
        except BaseException as error:
            self.count -= 1
            stock.coming -= 1
            if not isinstance(error, Exception):
                raise
            self._failed(stock, error)
        else:
            stock.coming -= 1
            stock.succeeded()
            self._store(stock, member)
        self._changed()

    async def _clean(self, member: Member, stock: Stock) -> None:
        try:
            fresh = await member.renewed()
        except Exception as error:  # noqa: BLE001  a reset may be anybody's function
            _log.info("a terminal of %s is not used again: %s", stock.profile, error)
            stock.coming -= 1
            self.close(member)
        else:
            stock.coming -= 1
            self._store(stock, fresh)
        self._changed()

    def _store(self, stock: Stock, member: Member) -> None:
        if not self.stopped and len(stock.ready) < max(stock.pool.warm, self._waiting(stock)):
            stock.ready.append(member)
        else:
            self.close(member)

    def _failed(self, stock: Stock, error: Exception) -> None:
        told = self._refused(stock, error)
        if not told or stock.pool.warm:
            rest_s = stock.failed()
            _log.warning("no terminal of %s for %g s: %s", stock.profile, rest_s, error)
            asyncio.get_running_loop().call_later(rest_s, self._rested, stock)

    def _rested(self, stock: Stock) -> None:
        stock.resting = False
        self._changed()

    async def _close(self, member: Member) -> None:
        try:
            await member.close()
        finally:
            self.closing -= 1
            self.count -= 1
            self._changed()
