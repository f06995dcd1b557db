"""Published prices of models, from the table of the package ``genai-prices``; the extra `prices` installs it.

The table is as old as the package, and nothing is downloaded. A model is found by its name and the address of its
endpoint, so that a model of the same name on a private server has no price.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hermes_exec_agent.models.protocol import Price

if TYPE_CHECKING:
    from hermes_exec_agent.models.protocol import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPrice(Price):
    """A price of the table. Its fields are those of the highest tier, so that they bound every request."""

    prices: Any = field(repr=False, compare=False)
    """The entry of the table."""

    def cost_of(self, usage: Usage) -> float:
        """Return the cost of a reply, by the tier of its request."""
        from genai_prices import Usage as Counted

        counted = Counted(
            input_tokens=max(usage.prompt, usage.cached),
            cache_read_tokens=usage.cached,
            output_tokens=usage.completion,
        )
        return float(self.prices.calc_price(counted)["total_price"])


def look_up_price(model: str, base_url: str) -> Price | None:
    """Return the published price of a model at an endpoint; None if it is unknown, or the package is not installed."""
    if is_private(base_url):
        return None
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return None
    try:
        _, found = get_snapshot().find_provider_model(model, None, None, base_url)
        prices = found.get_prices(datetime.now(UTC))
    except LookupError:
        return None
    highest = [_find_highest(getattr(prices, f"{name}_mtok", None)) for name in ("input", "output", "cache_read")]
    if highest[0] is None or highest[1] is None:
        return None
    return ListPrice(highest[0], highest[1], highest[2], prices=prices)


def is_private(base_url: str) -> bool:
    """Whether an endpoint is on this machine or in a private network, which no table of prices has."""
    host = urlsplit(base_url).hostname or ""
    try:
        return not ip_address(host).is_global
    except ValueError:
        return "." not in host


def _find_highest(price: Any) -> float | None:
    """Return the price of the highest tier; None if there is no price."""
    if price is None:
        return None
    tiers = [float(tier.price) for tier in getattr(price, "tiers", ())]
    return max([float(getattr(price, "base", price)), *tiers])
