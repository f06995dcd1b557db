"""What a reviewer is asked for each cause, and the tools that it gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec_agent.learning.review_tools import ReviewMemory
from hermes_exec_agent.tools.skill_list import SkillsList, SkillView

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hermes_exec.config.settings import LearningSettings
    from hermes_exec_agent.learning.review_queue import CauseName, Review
    from hermes_exec_agent.runtime.events.event import Event
    from hermes_exec_agent.runtime.events.log import EventLog
    from hermes_exec_agent.tools.tool import Context, Tool

_MEMORY = """\
You look at what a person and an agent said, and decide what the agent should remember for later conversations. Keep \
what the person said about themselves, their wishes and their ways of working in the file user, in their own words, \
and lasting facts of the work in the file memory. Replace an entry that the person has changed. Leave out what is true \
for one task alone, what is in memory already, secrets, orders, and what the person did not say. Use the tool memory, \
and then reply in one short sentence what you kept. If there is nothing, reply "Nothing to save." """
_CORRECTION = """\
The person judged the task below as not done well. Decide what the agent should remember so that it does better next \
time: what the person wanted instead, in their own words. """


@dataclass(frozen=True, slots=True)
class Reviewed:
    """What a review looks at, and what its tools may use."""

    review: Review
    log: EventLog
    settings: LearningSettings
    events: Sequence[Sequence[Event]]
    """The events of each reviewed conversation, once each."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A kind of review."""

    ask: str
    """The reviewer's instructions."""
    create_tools: Callable[[Reviewed, Context], Sequence[Tool]]


def _create_memory_tools(reviewed: Reviewed, context: Context) -> Sequence[Tool]:
    skills: list[Tool] = [SkillsList(), SkillView()]
    return [ReviewMemory(reviewed.events), *skills] if context.journal is not None else skills


CAUSES: Mapping[CauseName, Cause] = {
    "interval": Cause(_MEMORY, _create_memory_tools),
    "correction": Cause(_CORRECTION + _MEMORY, _create_memory_tools),
}
