"""The budgets of dollars of a turn and of a day."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from hermes_exec_agent.errors import BudgetSpent
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from hermes_exec_agent.models.protocol import Usage
    from hermes_exec_agent.runtime.events.log import EventLog


@dataclass(slots=True)
class _Spending:
    """The cost of one turn and its delegated tasks."""

    dollars: float = 0.0
    unpriced: str = ""
    """The model that sent a reply of unknown cost."""


class CostMeter:
    """Counts the cost of one conversation's turn, with that of the tasks that it delegated.

    What a day cost is read from the log, so that it includes all conversations in it.
    """

    def __init__(self, log: EventLog, *, turn: float | None, day: float | None) -> None:
        """``turn`` and ``day`` are US dollars; None if there is no limit."""
        self._log = log
        self._turn = turn
        self._day = day
        self._spending = _Spending()

    def share(self) -> CostMeter:
        """Return a meter for a task of this turn that may outlast it: both count into the same sum until it ends."""
        other = CostMeter(self._log, turn=self._turn, day=self._day)
        other._spending = self._spending
        return other

    def add(self, usage: Usage, model: str, *, scripted: bool) -> None:
        """Count a reply. A scripted one without a cost costs nothing."""
        if usage.cost is not None:
            self._spending.dollars += usage.cost
        elif not scripted:
            self._spending.unpriced = model

    async def check(self, model: str) -> None:
        """Check that a turn of ``model`` may begin.

        Raises:
            BudgetSpent: nothing may be spent, or it could not be counted.
        """
        if self._spending.unpriced == model:
            raise BudgetSpent(self._describe_unpriced(), remedy="prices = { input = …, output = … } in [models.NAME]")
        if ended := await self._find_spent_day():
            raise BudgetSpent(ended.rstrip("."), remedy="tomorrow, or a higher most_cost_day in [agent] of hermes.toml")

    async def begin_turn(self, model: str) -> None:
        """Begin to count a turn of ``model``.

        Raises:
            BudgetSpent: as `check` does.
        """
        await self.check(model)
        self._spending = _Spending()

    async def find_end(self) -> str:
        """Return the reason why no more may be spent, as a sentence; empty if there is none."""
        if self._spending.unpriced:
            return f"{self._describe_unpriced()}."
        spent = self._spending.dollars
        if self._turn is not None and spent >= self._turn:
            return f"The budget of {format_cost(self._turn)} for this request is spent: {format_cost(spent)}."
        return await self._find_spent_day()

    async def _find_spent_day(self) -> str:
        if self._day is None:
            return ""
        midnight = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
        loop = asyncio.get_running_loop()
        spent = await loop.run_in_executor(self._log.executor, self._log.cost_since, midnight)
        if spent < self._day:
            return ""
        return f"The budget of {format_cost(self._day)} for today is spent: {format_cost(spent)}."

    def _describe_unpriced(self) -> str:
        return f"the cost of {flatten(self._spending.unpriced)} is unknown, so that a budget of dollars cannot be kept"


def format_cost(dollars: float) -> str:
    """Return an amount of US dollars, with as many digits as small amounts need."""
    return f"${dollars:.2f}" if round(dollars, 2) == round(dollars, 6) else f"${dollars:.6f}".rstrip("0")
