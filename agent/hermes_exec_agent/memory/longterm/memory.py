"""Memories, and their order for a query: by the cosine of the meanings, and by age.

Each kind has a rate of its own. One rate for all would bury old facts below recent chatter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hermes_exec_agent.memory.entries import Origin, Source

Kind: TypeAlias = Literal["episodic", "semantic", "declarative", "turn"]
KINDS: tuple[Kind, ...] = ("episodic", "semantic", "declarative", "turn")
SEARCHED: tuple[Kind, ...] = ("episodic", "semantic", "declarative")
"""Kinds that a search of the memory finds; turns are found by searches of conversations alone."""
RECALLED: tuple[Kind, ...] = ("episodic", "semantic")
"""Kinds that are quoted next to requests; skills are named there by `tools.skill_recall`."""
DECAY: Mapping[Kind, float] = {"episodic": 0.01, "semantic": 0.001, "declarative": 0.0, "turn": 0.0}
"""How fast each kind loses weight: its score is multiplied by e to the minus rate times days."""
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Memory:
    """One remembered text with its provenance."""

    kind: Kind
    """Episodic: notes and failed runs. Semantic: entries of the journal. Declarative: descriptions of skills.
    Turn: messages of persons and of models."""
    text: str
    source: str
    """Identifies it in its log: a later text of the same source replaces an earlier one."""
    at: float
    """Seconds since 1970, UTC."""
    origin: Origin = "untrusted"
    evidence: tuple[Source, ...] = ()
    """The events that it comes from."""


@dataclass(frozen=True, slots=True)
class Match:
    """A memory that was found."""

    memory: Memory
    cosine: float
    """Of its meaning and the query's, from -1 to 1."""
    score: float
    """The cosine after decay, by which matches are ordered."""


def score_matches(found: Iterable[tuple[Memory, float]], *, now: float, floor: float, count: int) -> list[Match]:
    """Return the best matches, the highest score first.

    Args:
        found: memories and their cosines.
        now: seconds since 1970; memories from the future count as new.
        floor: the least cosine. Age only orders matches, so an old memory that fits is not lost.
        count: the most matches.
    """
    matches = [
        Match(memory, cosine, cosine * math.exp(-DECAY[memory.kind] * max(now - memory.at, 0.0) / _DAY_S))
        for memory, cosine in found
        if cosine >= floor
    ]
    return sorted(matches, key=lambda each: (-each.score, each.memory.source))[:count]
