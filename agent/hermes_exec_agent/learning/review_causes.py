"""What a reviewer is asked for each cause, and the tools that it gets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from hermes_exec_agent.learning import experience, refinement
from hermes_exec_agent.learning.review_tools import ReviewMemory
from hermes_exec_agent.tools.skill_list import SkillsList, SkillView
from hermes_exec_agent.tools.skillset import Skillset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hermes_exec.config.settings import LearningSettings
    from hermes_exec_agent.learning.review_queue import CauseName, Review
    from hermes_exec_agent.memory.embedding.protocol import Embedder
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
    embedder: Embedder | None = None
    """Compares skills by their meaning."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A kind of review."""

    ask: str
    """The reviewer's instructions."""
    create_tools: Callable[[Reviewed, Context], Sequence[Tool]]


def _create_memory_tools(reviewed: Reviewed, context: Context) -> Sequence[Tool]:
    skills: list[Tool] = [SkillsList(), SkillView()]
    return [ReviewMemory(reviewed.events), *skills] if context.journal is not None else skills


def _create_skill_tools(
    create: Callable[[experience.ReviewScope], Tool], reviewed: Reviewed, context: Context
) -> Sequence[Tool]:
    """Return the tools of a review of one task, whose conversation is the only one."""
    conversation, request = reviewed.review.tasks[-1]
    experience.recover_skills(reviewed.log, context.service(Skillset).registry, context.conversation)
    scope = experience.ReviewScope(
        reviewed.log, conversation, request, exempt=reviewed.settings.curator_exempt, embedder=reviewed.embedder
    )
    return [create(scope), SkillsList(), SkillView()]


CAUSES: Mapping[CauseName, Cause] = {
    "interval": Cause(_MEMORY, _create_memory_tools),
    "correction": Cause(_CORRECTION + _MEMORY, _create_memory_tools),
    "experience": Cause(experience.ASK, partial(_create_skill_tools, experience.ExperienceSkills)),
    "refinement": Cause(refinement.ASK, partial(_create_skill_tools, refinement.RefinementSkills)),
}
