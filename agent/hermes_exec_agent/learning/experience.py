"""Skills from experience: the rules for what a review may make of a task, and its tool.

A skill rests on a task that succeeded by evidence from outside of the model, and names the events that show it. A task
that failed, was interrupted, or whose success only the model claims yields none.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from pydantic import Field

from hermes_exec.errors import Refused, UsageError
from hermes_exec_agent.learning.outcomes import read_task, select_turn
from hermes_exec_agent.learning.skill_writer import Material, SkillWriter
from hermes_exec_agent.memory.origins import read_own_words
from hermes_exec_agent.quoting import flatten
from hermes_exec_agent.skills.registry.record import Author, Experience
from hermes_exec_agent.tools.base import BaseTool, ToolArguments
from hermes_exec_agent.tools.envelope import Envelope, find_failure
from hermes_exec_agent.tools.planning import HERE
from hermes_exec_agent.tools.provenance import Provenance, is_inward
from hermes_exec_agent.tools.skill_list import describe_version
from hermes_exec_agent.tools.skillset import Skillset

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from hermes_exec_agent.learning.skill_writer import WrittenSkill
    from hermes_exec_agent.memory.embedding.protocol import Embedder
    from hermes_exec_agent.runtime.events.event import Event
    from hermes_exec_agent.runtime.events.log import EventLog
    from hermes_exec_agent.skills.registry.record import Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_agent.tools.tool import Context

ASK = """\
The task below succeeded by evidence from outside of you. Decide whether it took steps that will be useful again: an \
order of steps that is not obvious, an error and its way out, a convention of this person. If not, reply "Nothing to \
save." If so, look at skills_list first. Where a skill is for this purpose, patch it; otherwise create one. A guide is \
the usual form: one SKILL.md with a name, a description that says when to use it, and the sections Context, \
Prerequisites, Steps, Pitfalls and Variations, at most 400 lines, better 40. Write what was done and worked, with \
exact commands and paths, and leave out what belongs to this one request. Long texts go to references/, templates/ or \
scripts/. Make a function only where the same computation will be needed with other arguments. Name the request's \
number as task, and the numbers of the events that show the steps."""
"""Asks the reviewer for a skill."""
_OWN_TEXT = frozenset({"write_file", "patch"})
"""Tools whose results, if they succeed, have the program's words and the model's path alone."""
_LISTED = 8
"""Results that an error names."""
A = TypeVar("A", bound="SkillChange")


@dataclass(frozen=True, slots=True)
class ReviewScope:
    """What one review may use."""

    log: EventLog
    conversation: str
    """The conversation that is reviewed."""
    request: int
    """The number of the task's request in it."""
    exempt: Collection[str] = ()
    """Names of skills that are not changed."""
    embedder: Embedder | None = None


@dataclass(frozen=True, slots=True)
class ReviewedTask:
    """A task of the reviewed conversation."""

    record: dict[str, Any]
    """Its outcome; see `learning.outcomes`."""
    turn: Sequence[Event]
    """Its events, from the request to the last one before the next request."""
    before: Sequence[Event]
    """All events of the conversation until then."""
    material: Material
    """The sources of the whole conversation, as the reviewer read it."""

    @property
    def request(self) -> int:
        """The number of its request."""
        return self.turn[0].number

    @property
    def has_evidence(self) -> bool:
        """Whether something outside of the model confirms its result."""
        return self.record["evidence"]["kind"] in {"check", "person"}

    def describe(self) -> str:
        """Return the task with its outcome, for an error."""
        how = f" by {self.record['evidence']['kind']}" if self.has_evidence else ", without evidence"
        return f"the task #{self.request}: {self.record['result']}{how}, {self.record['ended']}"


def read_reviewed_task(scope: ReviewScope, request: int) -> ReviewedTask:
    """Return the task of a review, which a call names by the number of its request.

    Raises:
        UsageError: the call names another one, or the task has not ended.
        HermesError: the log cannot be read.
    """
    if request != scope.request:
        raise UsageError(f"#{request} is not the task of this review", remedy=f"the task #{scope.request}")
    record = read_task(scope.log, scope.conversation, request)
    events = scope.log.events(scope.conversation)
    turn = select_turn(events, request)
    if record is None or not turn:
        raise UsageError(f"the task #{request} has not ended", remedy="save nothing of it")
    before = [each for each in events if each.number <= turn[-1].number]
    return ReviewedTask(record, turn, before, find_material(events))


def find_material(events: Sequence[Event]) -> Material:
    """Return the sources of a conversation's text, by its events.

    The output of tools counts, except where it is empty, and except for the confirmation of a file that was written.
    """
    provenance = Provenance()
    has_output = False
    for event in events:
        match event.kind:
            case "started":
                provenance.add_start(event.data)
                has_output |= provenance.has_output
            case "user":
                content = str(event.data.get("content") or "")
                has_output |= any(each.get("has_output") for each in event.data.get("parts", ()))
                has_output |= read_own_words(event) != content.strip()  # a file is attached
            case "result":
                provenance.add_result(event)
                has_output |= _has_outside_text(str(event.data["name"]), str(event.data["content"]))
            case _:
                pass
    return Material(has_output=has_output, has_untrusted_skill=bool(provenance.find_untrusted()))


def _has_outside_text(tool: str, content: str) -> bool:
    if is_inward(tool):
        return False
    try:
        fields: dict[str, Any] = json.JSONDecoder().raw_decode(content)[0]
        if fields.get("ok") is True and tool in _OWN_TEXT:
            return False
        return any(fields.get(name) for name in ("output", "output_ref", "error"))
    except (ValueError, AttributeError, RecursionError):
        return bool(content)


def check_success(task: ReviewedTask) -> None:
    """Check that a task may yield a skill.

    Raises:
        Refused: it failed, did not end with an answer, or nothing outside of the model confirms its success.
    """
    if task.record["result"] == "succeeded" and task.has_evidence and task.record["ended"] == "answered":
        return
    raise Refused(
        f"a skill needs a task that succeeded by evidence from outside of the model, and not {task.describe()}",
        remedy="save nothing of it",
    )


def check_events(task: ReviewedTask, numbers: Sequence[int]) -> None:
    """Check that events belong to a task, and that one of them is the result of a call that succeeded.

    Raises:
        UsageError: one does not, or none is.
    """
    known = {each.number: each for each in task.turn}
    if foreign := [number for number in numbers if number not in known]:
        raise UsageError(
            f"#{foreign[0]} is not an event of the task #{task.request}",
            remedy=f"numbers from {task.request} to {task.turn[-1].number}",
        )
    results = [each.number for each in task.turn if each.kind == "result" and not _is_failure(each)]
    if not {*numbers} & {*results}:
        shown = ", ".join(f"#{number}" for number in results[:_LISTED])
        raise UsageError("none of the events is a result that shows a step", remedy=f"some of {shown or 'none'}")


def _is_failure(event: Event) -> bool:
    return bool(find_failure(str(event.data["content"])))


class SkillChange(ToolArguments):
    """What each change of a skill names."""

    name: str = Field(min_length=1, max_length=100, description="Of the skill, such as count-files")
    patch: str = Field(min_length=1, description="V4A, paths such as SKILL.md, references/x.md, scripts/main.py")
    task: int = Field(ge=1, description="The number of the task's request")
    events: list[int] = Field(min_length=1, max_length=100, description="Numbers of the events that show it")


class LearnedSkills(BaseTool[A]):
    """The part of ``skill_manage`` that the tools of reviews share.

    No person is asked, and nothing runs in the target of the conversation: what a person has to decide waits.
    """

    name = "skill_manage"
    callable_from_scripts = False
    available_to_delegates = False
    cause: ClassVar[str]

    def __init__(self, scope: ReviewScope) -> None:
        super().__init__()
        self._scope = scope

    def needs_approval(self, args: A) -> bool:  # noqa: ARG002  the rules of this tool decide, and no person is there
        """Return False."""
        return False

    async def write(self, args: A, task: ReviewedTask, context: Context, *, create: bool, reason: str) -> Envelope:
        """Register the change; a call that was cut off after it had registered something returns that."""
        _check_secrets(args.patch + reason, context)
        writer = self._create_writer(args, task, context, reason)
        written = writer.find_written()
        if written is None:
            written = await (writer.create if create else writer.patch)(args.name, args.patch)
            context.record("skill", _to_facts(written.version, waits=written.waits))
        return _describe_written(written)

    def _create_writer(self, args: A, task: ReviewedTask, context: Context, reason: str) -> SkillWriter:
        started = task.before[0].data
        evidence = task.record["evidence"]
        experience = Experience(
            cause=self.cause,
            conversation=self._scope.conversation,
            request=task.request,
            task=int(task.record["task"]),
            events=tuple(sorted({*args.events})),
            result=str(task.record["result"]),
            evidence=f"{evidence['kind']}: {evidence['detail']}".rstrip(": ") if task.has_evidence else "",
            reason=reason,
            review=context.conversation,
            call=hashlib.sha256(json.dumps(args.model_dump(), sort_keys=True).encode()).hexdigest()[:16],
        )
        untrusted = task.material.has_untrusted_skill or bool(context.provenance.find_untrusted())
        return SkillWriter(
            registry=context.service(Skillset).registry,
            author=Author(
                kind="agent", name="review", model=context.model, shells=(str(started.get("target", "unknown")),)
            ),
            experience=experience,
            material=Material(has_output=task.material.has_output, has_untrusted_skill=untrusted),
            request=read_own_words(task.turn[0]),
            exempt=self._scope.exempt,
            embedder=self._scope.embedder,
        )


def recover_skills(log: EventLog, registry: Registry, review: str) -> None:
    """Add the versions to a review's conversation that it registered before a kill, and that its log does not have."""
    known = {(each.data.get("name"), each.data.get("version")) for each in log.events(review) if each.kind == "skill"}
    for skill in registry.skills().values():
        for number, event in skill.versions.items():
            learned: dict[str, Any] = event.facts.get("learned") or {}
            if learned.get("review") == review and (skill.name, number) not in known:
                waits = number in skill.waiting
                log.append(review, "skill", _to_facts(registry.read_version(skill, number), waits=waits))


def _to_facts(version: Version, *, waits: bool) -> dict[str, Any]:
    facts = {"name": version.name, "version": version.number, "outcome": "registered"}
    return {**facts, "waits": True} if waits else facts


def _check_secrets(text: str, context: Context) -> None:
    if context.models is not None and context.models.redactor.redact(text) != text:
        raise Refused("the skill would have a secret in it; nothing was registered", remedy="leave that out")


def _describe_written(written: WrittenSkill) -> Envelope:
    version = written.version
    notes = [written.note] if written.note else []
    if written.waits:
        notes.append(
            f"{version.name} {version.number} rests on untrusted material, and waits for a person: "
            f"hermes-exec skill release {version.name}"
        )
    return Envelope(ok=True, place=HERE, output=f"registered {describe_version(version)}", note="; ".join(notes))


class ExperienceArguments(SkillChange):
    """Make a skill from a task that succeeded by outside evidence, or change one: a guide, or a tested function.

    create: the patch adds its files. A guide has the sections Context, Prerequisites, Steps, Pitfalls and Variations,
    in 400 lines at most. patch: it changes files of a skill that an agent wrote; read it before.
    """

    action: Literal["create", "patch"]
    reason: str = Field("", max_length=400, description="What it adds, in one sentence")


class ExperienceSkills(LearnedSkills[ExperienceArguments]):
    """Makes skills from tasks that succeeded."""

    arguments_type = ExperienceArguments
    cause = "experience"

    async def run(self, args: ExperienceArguments, context: Context) -> Envelope:
        """Check the task and its events, and register the skill."""
        task = read_reviewed_task(self._scope, args.task)
        check_success(task)
        check_events(task, args.events)
        return await self.write(args, task, context, create=args.action == "create", reason=flatten(args.reason, 400))
