"""The most that the models of one run may cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.batch.capped_model import CappedModel
from hermes_exec_agent.batch.ledger import Amounts
from hermes_exec_agent.batch.model_choice import find_price
from hermes_exec_agent.models.catalog import Models

if TYPE_CHECKING:
    from hermes_exec_agent.models.protocol import Model

MAX_TOKENS = 8192
"""Of each reply under a cap, as the bound of a request includes a whole reply."""


class CostReached(HermesError):
    """The cap of the run does not allow another request to a model; it was not sent."""

    state = "completed calls stay recorded"


class RunAccount:
    """What a run may still cost; all its models share it."""

    def __init__(self, dollars: float) -> None:
        self._dollars = dollars
        self._cap = Amounts.of(dollars=dollars).money
        self._used = 0

    async def reserve(self, need: Amounts) -> None:
        """Reserve an amount.

        Raises:
            CostReached: the cap does not allow it.
        """
        if self._used + need.money > self._cap:
            raise CostReached(f"the cap of {self._dollars:g} $ does not allow another request", remedy="--most-cost")
        self._used += need.money

    def settle(self, reserved: Amounts, used: Amounts) -> None:
        """Count what a request used."""
        self._used += used.money - reserved.money


def cap_models(models: Models, dollars: float) -> Models:
    """Return models that send no request which might exceed the cap.

    Raises:
        UsageError: a model has no price.
    """
    account = RunAccount(dollars)

    def cap(model: Model) -> CappedModel:
        price = find_price(model)
        if price is None:
            raise UsageError(
                f"the model {to_printable(model.name)} has no price, so that --most-cost cannot be kept",
                remedy="the extra prices, or prices = {input = …, output = …} in [models.NAME] of hermes.toml",
            )
        return CappedModel(model, account, price, MAX_TOKENS)

    return Models(cap(models.main), cap(models.auxiliary), secrets=models.secrets)
