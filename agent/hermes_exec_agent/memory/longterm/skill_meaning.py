"""Compares requests with skills by meaning, through the long-term memory, which has the vectors of the descriptions.

How near a text is to others depends on the embedder and on the text. So a request is compared with fixed examples of
requests as well, and a skill counts as near if it is nearer than these are on average, in units of their deviation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec_agent.memory.longterm.request_examples import WORK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from hermes_exec_agent.memory.longterm.memory import Memory
    from hermes_exec_agent.memory.longterm.service import LongTermMemory

_NEAREST = 5
"""Examples of each sort that a request is compared with."""
_SMALLEST = 1e-6
SKILLS = 200
"""Nearest skills that a request is compared with."""
_PREFIX = "skill:"
"""The beginning of a skill's source."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The meaning of a request, in units of the deviation of its nearness to the examples."""

    leaning: float
    """How much nearer it is to work than to everyday requests."""
    nearness: Mapping[str, float]
    """How much nearer it is to a skill than to the examples on average, by the skill's name."""


class SkillMeaning:
    """Compares requests for the conversations of one program."""

    def __init__(self, memory: LongTermMemory) -> None:
        self._memory = memory

    async def compare(self, request: str) -> Comparison | None:
        """Compare a request, in bounded time; None if the memory is away, or not ready yet. Raises nothing."""
        examples = self._memory.examples.vectors if self._memory.examples is not None else None
        found = None if examples is None else await self._memory.find_nearest(request, ["declarative"], SKILLS)
        return None if examples is None or found is None else compare(found[0], examples, found[1])


def compare(
    vector: NDArray[np.float32], examples: NDArray[np.float32], skills: Sequence[tuple[Memory, float]]
) -> Comparison:
    """Compare the vector of a request.

    Args:
        vector: of the request, of length 1.
        examples: see `ExampleVectors.vectors`.
        skills: the nearest skills, and their cosines.
    """
    import numpy as np

    cosines = examples @ vector
    mean, deviation = float(cosines.mean()), max(float(cosines.std()), _SMALLEST)
    work, everyday = (float(np.sort(each)[-_NEAREST:].mean()) for each in np.split(cosines, [len(WORK)]))
    nearness = {memory.source.removeprefix(_PREFIX): (cosine - mean) / deviation for memory, cosine in skills}
    return Comparison((work - everyday) / deviation, nearness)
