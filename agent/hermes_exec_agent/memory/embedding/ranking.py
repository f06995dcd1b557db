"""Mix several rankings, such as one by words and one by meaning.

The mixture adds the reciprocals of the ranks, so that scores of different kinds are never compared. The weights of
`WEIGHTS` apply wherever words and meaning are mixed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    T = TypeVar("T", bound=Hashable)

WEIGHTS: Mapping[str, float] = {"words": 2.0, "meaning": 1.0}
"""The weight of each ranking; a ranking without a weight has 1. docs/benchmarks.md compares mixtures."""
_DAMPING = 60
"""Added to each rank, so that the first ranks of one ranking do not outweigh all others."""


def fuse(rankings: Mapping[str, Sequence[T]], weights: Mapping[str, float] = WEIGHTS) -> list[T]:
    """Return the items of all rankings, the best of the mixture first.

    Items with the same sum keep the order in which the rankings have them.

    Args:
        rankings: items by the name of the ranking, the best first.
        weights: by the name of the ranking; one of 0 leaves a ranking out.
    """
    scores: dict[T, float] = {}
    for name, items in rankings.items():
        if weight := weights.get(name, 1.0):
            for rank, item in enumerate(dict.fromkeys(items), 1):
                scores[item] = scores.get(item, 0.0) + weight / (_DAMPING + rank)
    return sorted(scores, key=lambda item: -scores[item])
