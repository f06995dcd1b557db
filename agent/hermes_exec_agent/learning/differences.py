"""The difference of two success rates, with a 95 % confidence interval.

The interval is that of R. G. Newcombe, "Improved confidence intervals for the difference between binomial proportions
based on paired data", Statistics in Medicine 17 (1998), method 10: Wilson's score intervals of the two rates, combined
with the correlation of the pairs. It keeps its coverage with few pairs, and with rates of 0 and 1.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

LEVEL = 0.95
METHOD = "Newcombe 1998, paired, method 10"
_Z = NormalDist().inv_cdf((1 + LEVEL) / 2)


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of the success rates of two arms, as fractions of 1."""

    pairs: int
    value: float
    low: float
    """The lower end of the 95 % interval."""
    high: float

    @property
    def is_shown(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0

    def facts(self) -> dict[str, Any]:
        """Return the fields for programs."""
        return {**asdict(self), "level": LEVEL, "method": METHOD}


def estimate_difference(pairs: Iterable[tuple[bool, bool]]) -> Difference:
    """Return the success rate of the first elements minus that of the second ones.

    Without any pair, nothing is known: the value is 0 and the interval from -1 to 1.
    """
    counts = Counter(pairs)
    both, first, second, neither = (counts[key] for key in ((True, True), (True, False), (False, True), (False, False)))
    number = counts.total()
    if not number:
        return Difference(0, 0.0, -1.0, 1.0)
    rates = ((both + first) / number, (both + second) / number)
    (low1, high1), (low2, high2) = (wilson_interval(round(rate * number), number) for rate in rates)
    phi = _correlate(both, first, second, neither)
    value = (first - second) / number
    low = value - _combine(rates[0] - low1, high2 - rates[1], phi)
    high = value + _combine(rates[1] - low2, high1 - rates[0], phi)
    return Difference(number, value, max(low, -1.0), min(high, 1.0))


def wilson_interval(successes: int, number: int) -> tuple[float, float]:
    """Return Wilson's score interval of a rate."""
    rate, square = successes / number, _Z * _Z
    middle = (rate + square / (2 * number)) / (1 + square / number)
    half = _Z / (1 + square / number) * math.sqrt(rate * (1 - rate) / number + square / (4 * number**2))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def _correlate(both: int, first: int, second: int, neither: int) -> float:
    """Return the correlation of the pairs, with Newcombe's correction for continuity; 0 if an arm has one result."""
    margins = (both + first) * (second + neither) * (both + second) * (first + neither)
    product = float(both * neither - first * second)
    if product > 0:
        product = max(product - (both + first + second + neither) / 2, 0.0)
    return product / math.sqrt(margins) if margins else 0.0


def _combine(one: float, other: float, phi: float) -> float:
    return math.sqrt(max(one * one - 2 * phi * one * other + other * other, 0.0))
