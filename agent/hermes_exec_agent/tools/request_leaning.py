"""Whether a request reads like work with tools, by words such as "our image" or "set up", unlike "who was".

These words say little about a subject, so the index of skills leaves them out. They are weighed by the examples of
requests, as naive Bayes does.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from hermes_exec_agent.memory.longterm.request_examples import EVERYDAY, WORK

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORD = re.compile(r"[^\W_]+|\?")
_FEWEST = 2
"""Examples that a feature needs to count."""
_LEAST = 2.0
"""The logarithm of the odds that a request is work, from which on it counts as such."""
_LONGEST = 2000


def leans_to_work(request: str) -> bool:
    """Return whether a request reads like those that skills help with."""
    weights = _weigh_features()
    return sum(weights.get(each, 0.0) for each in _list_features(request[:_LONGEST])) >= _LEAST


def _list_features(text: str) -> set[str]:
    """Return the words of a text, and its pairs of words, of which the first one tells where it begins."""
    words = _WORD.findall(text.casefold())
    return {*words, *(f"{first} {second}" for first, second in pairwise(["", *words]))}


@cache
def _weigh_features() -> Mapping[str, float]:
    work, everyday = (Counter(each for text in texts for each in _list_features(text)) for texts in (WORK, EVERYDAY))
    return {
        each: math.log((work[each] + 0.5) / (len(WORK) + 1)) - math.log((everyday[each] + 0.5) / (len(EVERYDAY) + 1))
        for each in {*work, *everyday}
        if work[each] + everyday[each] >= _FEWEST
    }
