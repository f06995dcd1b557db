"""Refinement in use: the rules for a change of a skill that did not prevent a failure, and the reviewer's tool.

The skill was read or run before a step that failed, or in a task that failed. The change names the events, and why: an
edge case, a prerequisite, or an alternative. The next version has both in its record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from hermes_exec.errors import Refused
from hermes_exec_agent.learning.experience import LearnedSkills, ReviewedTask, SkillChange, read_reviewed_task
from hermes_exec_agent.quoting import flatten
from hermes_exec_agent.tools.envelope import find_failure
from hermes_exec_agent.tools.skill_manage import normalize_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_agent.runtime.events.event import Event
    from hermes_exec_agent.tools.envelope import Envelope
    from hermes_exec_agent.tools.tool import Context

ASK = """\
In the conversation below a skill was read or run, and a later step or the whole task failed. Decide whether the skill \
could have prevented that: an edge case, a prerequisite, or an alternative that it lacks, or a step that is wrong. If \
it could not, reply "Nothing to save." Otherwise read the skill with skill_view, and change those lines of it with \
patch. Keep the rest, and add nothing that no event shows. Name the request's number as task, the numbers of the \
events that show the failure and the way out, and the reason in one sentence."""
"""Asks the reviewer for a change of a skill."""


class RefinementArguments(SkillChange):
    """Change a skill that was read or run before a step that failed. Read it before; the change is a new version."""

    reason: str = Field(min_length=10, max_length=400, description="The edge case, prerequisite or alternative")


class RefinementSkills(LearnedSkills[RefinementArguments]):
    """Changes skills that did not prevent a failure."""

    arguments_type = RefinementArguments
    cause = "refinement"

    async def run(self, args: RefinementArguments, context: Context) -> Envelope:
        """Check that the skill was there before the failure, and register its next version."""
        task = read_reviewed_task(self._scope, args.task)
        check_failure(task, normalize_name(args.name), args.events)
        return await self.write(args, task, context, create=False, reason=flatten(args.reason, 400))


def check_failure(task: ReviewedTask, name: str, numbers: Sequence[int]) -> None:
    """Check that a skill was read or run before a failure that one of the events shows.

    A task that failed by evidence is such a failure, whichever events are named.

    Raises:
        Refused: it was not, or none of them shows a failure.
    """
    loaded = [each.number for each in task.before if is_load(each, name)]
    if not loaded:
        raise Refused(f"{name} was not read or run before the end of the task #{task.request}", remedy="change nothing")
    known = {each.number: each for each in task.before}
    if foreign := [number for number in numbers if number not in known]:
        raise Refused(f"#{foreign[0]} is not an event before the end of the task", remedy="numbers after #")
    if task.has_evidence and task.record["result"] == "failed":
        return
    if not any(number > loaded[0] and is_failed_step(known[number]) for number in numbers):
        raise Refused(
            f"none of the events is a step that failed after {name} was read or run, and the task did not fail",
            remedy="name the failed result, or change nothing",
        )


def is_load(event: Event, name: str) -> bool:
    """Whether an event is that a skill was read or run."""
    data = event.data
    return event.kind == "skill" and data.get("name") == name and data.get("outcome") != "registered"


def is_failed_step(event: Event) -> bool:
    """Whether an event is the result of a call that failed."""
    return event.kind == "result" and bool(find_failure(str(event.data["content"])))
