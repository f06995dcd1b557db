"""Measure the effect of a skill, or of an entry of memory: labelled tasks with it and without it, in turns.

A sample is one task in a conversation of its own, in a fresh folder of the target; the exit code of the task's check
shows whether it succeeded. The two samples of one task and round are a pair. A check that cannot run leaves its sample
ungraded, and the pair is not counted.

Measured conversations are recorded in a log of their own. They have no memory but the measured entry, and can change
neither memory nor skills. Each sample is an event of the kind ``measurement`` in the stream `STREAM` of the person's
log, so that a measurement that was interrupted can be resumed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from hermes_exec._async import create_or_rollback, shield_to_completion
from hermes_exec.config.load import load_settings
from hermes_exec.config.paths import read_regular, to_printable
from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.learning.checks import run_check
from hermes_exec_agent.memory.entries import Entry
from hermes_exec_agent.memory.journal import Journal
from hermes_exec_agent.memory.persons import Participant
from hermes_exec_agent.memory.prompt import measure as measure_entries
from hermes_exec_agent.memory.screening import find_withholding
from hermes_exec_agent.quoting import flatten
from hermes_exec_agent.runtime.conversation import Conversation
from hermes_exec_agent.runtime.events.log import EventLog, new_id
from hermes_exec_agent.runtime.options import Options
from hermes_exec_agent.skills.registry.home import default_home
from hermes_exec_agent.tools.skillset import Skillset
from hermes_exec_agent.tools.tool import Context
from hermes_exec_agent.tools.toolset import create_instances, find_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hermes_exec import Terminal
    from hermes_exec_agent.models.catalog import Models
    from hermes_exec_agent.runtime.events.event import Event
    from hermes_exec_agent.tools.tool import Approvals, Person

_log = logging.getLogger("hermes_exec.agent")

STREAM = "measurements"
"""The id of the stream in the event log."""
Arm: TypeAlias = Literal["with", "without"]
ARMS: tuple[Arm, Arm] = ("with", "without")
Result: TypeAlias = Literal["succeeded", "failed", "ungraded"]
_OMITTED = frozenset({"clarify", "delegate_task", "memory", "session_search", "skill_manage", "user_ask"})
"""Tools that ask a person, change something that lasts, or read the person's past."""
_FIELDS = ("instruction", "check", "name", "folder", "setup")
_FORM = '{"instruction": "…", "check": "COMMAND"}, and also "name", "folder" and "setup" if wanted'
_CREATE = 'd=$(mktemp -d "${TMPDIR:-/tmp}/hermes-measure.XXXXXXXX") && mkdir "$d/work" && cd "$d" && pwd -P'
_ASKED_S = 60.0
_DETAIL = 200


@dataclass(frozen=True, slots=True)
class Task:
    """A labelled task."""

    name: str
    instruction: str
    check: str
    """A command of a POSIX shell, which runs in the folder of the sample; it exits with 0 if the task succeeded."""
    folder: str = ""
    """A folder of this machine that is copied to the folder of the sample; empty without one."""
    setup: str = ""
    """A command that runs in the folder of the sample before the request; empty without one."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The skill, or the entry of memory, whose effect is measured."""

    kind: Literal["skill", "entry"]
    text: str
    """The name of the skill, or the text of the entry."""
    version: int = 0
    """Of the skill."""

    def describe(self) -> str:
        """Return the subject in one line."""
        return f"skill {self.text} {self.version}" if self.kind == "skill" else f"entry {flatten(self.text, 60)!r}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The conditions of a measurement; one with the same conditions can be resumed."""

    tasks: tuple[Task, ...]
    subject: Subject
    rounds: int
    """Pairs of samples of each task."""
    model: str
    target: str
    approvals: str
    budget: int

    @property
    def digest(self) -> str:
        """SHA-256 of the conditions, in hexadecimal."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def list_samples(self) -> Iterator[tuple[int, int, Arm]]:
        """Yield round, index of the task and arm of each sample, in order; each arm is first in every other pair."""
        for number in range(self.rounds):
            for index in range(len(self.tasks)):
                arms = ARMS if (number + index) % 2 == 0 else ARMS[::-1]
                for arm in arms:
                    yield number, index, arm


@dataclass(frozen=True, slots=True)
class Sample:
    """The outcome of one task in one arm."""

    round: int
    task: str
    arm: Arm
    result: Result
    detail: str
    """One line: how the check, or the setup, ended."""
    calls: int = 0
    tokens: int = 0
    cost: float | None = None
    """In dollars; None if the model has no price."""
    seconds: float = 0.0
    loaded: bool = False
    """Whether the conversation used the skill, or had the entry in its prompt."""
    conversation: str = ""
    """Its id in the log of the measurement."""


class Measurement:
    """A measurement in the person's log, with its samples so far."""

    def __init__(self, log: EventLog, plan: Plan, id: str, samples: Sequence[Sample]) -> None:
        self.plan = plan
        self.id = id
        self.samples = list(samples)
        self._log = log

    @classmethod
    def begin(cls, log: EventLog, plan: Plan) -> Measurement:
        """Record the beginning of a measurement.

        Raises:
            HermesError: the log cannot be written.
        """
        id = new_id()
        facts = {"subject": asdict(plan.subject), "model": plan.model, "target": plan.target, "rounds": plan.rounds}
        record = {"what": "begun", "measurement": id, "digest": plan.digest, "tasks": len(plan.tasks), **facts}
        log.append(STREAM, "measurement", record)
        return cls(log, plan, id, ())

    @classmethod
    def resume(cls, log: EventLog, plan: Plan) -> Measurement:
        """Return the latest measurement with these conditions, which is not complete.

        Raises:
            UsageError: there is none.
        """
        events = log.events(STREAM)
        for event in reversed(events):
            if event.data["what"] == "begun" and event.data["digest"] == plan.digest:
                found = cls(log, plan, event.data["measurement"], _read_samples(events, event.data["measurement"]))
                if found.list_missing():
                    return found
                break
        raise UsageError(
            "there is no unfinished measurement of these tasks under the same conditions", remedy="leave --resume out"
        )

    @property
    def conversations(self) -> Path:
        """The log of its conversations."""
        return self._log.path.parent / STREAM / f"{self.id}.sqlite"

    def list_missing(self) -> list[tuple[int, int, Arm]]:
        """Return the samples that were not taken."""
        known = {(each.round, each.task, each.arm) for each in self.samples}
        tasks = self.plan.tasks
        return [each for each in self.plan.list_samples() if (each[0], tasks[each[1]].name, each[2]) not in known]

    async def run(self, bench: Bench, tell: Callable[[Sample], None]) -> None:
        """Take the missing samples; ``tell`` is called with each. A cancelled sample leaves nothing, also no record.

        Raises:
            UsageError: another program takes samples of this measurement.
            HermesError: the model or the target failed; the samples so far are recorded.
        """
        turn = await asyncio.to_thread(self._log.acquire_turn, f"{STREAM}/{self.id}")
        try:
            for number, index, arm in self.list_missing():
                sample = replace(await bench.run(self.plan.tasks[index], arm), round=number)
                record = {"what": "sample", "measurement": self.id, **asdict(sample)}
                await asyncio.to_thread(self._log.append, STREAM, "measurement", record)
                self.samples.append(sample)
                tell(sample)
        finally:
            self._log.release_turn(turn)


def _read_samples(events: Sequence[Event], id: str) -> list[Sample]:
    records = [each.data for each in events if each.data["what"] == "sample" and each.data["measurement"] == id]
    return [
        Sample(**{key: value for key, value in each.items() if key not in {"what", "measurement"}}) for each in records
    ]


class Bench:
    """Takes samples over one terminal, each in a conversation and a folder of its own."""

    def __init__(
        self,
        terminal: Terminal,
        log: EventLog,
        plan: Plan,
        scratch: Path,
        *,
        models: Callable[[], Models],
        person: Person,
        approvals: Approvals,
    ) -> None:
        """Create a bench.

        Args:
            terminal: where the tasks are done.
            log: of the measured conversations, and of nothing else.
            plan: the conditions.
            scratch: a folder of this machine for what the conversations leave; the caller removes it.
            models: returns the models of a sample; scripted ones begin again.
            person: is asked for approvals.
            approvals: which tools run without a question.

        Raises:
            UsageError: the entry is too long, or no conversation would show it.
        """
        self._terminal = terminal
        self._log = log
        self._plan = plan
        self._scratch = scratch
        self._models = models
        self._person = person
        self._approvals = approvals
        self._journal = self._create_journal(plan.subject.text) if plan.subject.kind == "entry" else None

    def _create_journal(self, text: str) -> Journal:
        entry, limit = Entry(text), load_settings().memory.memory_char_limit
        if reason := "it is empty" if not text.strip() else find_withholding(text):
            raise UsageError(f"this entry cannot be measured: {reason}")
        if measure_entries("memory", [entry]) > limit:
            raise UsageError(f"this entry is too long: memory has at most {limit} characters")
        journal = Journal(self._scratch / "memory", EventLog(self._scratch / "memory.sqlite"), {"memory": limit})
        journal.write("memory", lambda _: [entry], who="person", why="a measurement")
        return journal

    async def run(self, task: Task, arm: Arm) -> Sample:
        """Take a sample, of round 0. The folder is removed at its end, also after a cancellation.

        Raises:
            HermesError: the model or the target failed.
        """
        began = time.monotonic()
        root = await create_or_rollback(self._create_folder(), self._remove_folder)
        try:
            sample = await self._run_in(f"{root}/work", task, arm)
        finally:
            await shield_to_completion(self._remove_folder(root))
        return replace(sample, seconds=round(time.monotonic() - began, 3))

    async def _create_folder(self) -> str:
        created = await self._terminal.run(["/bin/sh", "-c", _CREATE], timeout=_ASKED_S, check=True)
        return created.stdout_text.removesuffix("\n")

    async def _remove_folder(self, folder: str) -> None:
        try:
            await self._terminal.files.remove(folder, recursive=True, missing_ok=True)
        except HermesError as error:  # the sample, or the error of the target, counts
            _log.warning("the folder of a sample was not removed: %s", error)

    async def _run_in(self, folder: str, task: Task, arm: Arm) -> Sample:
        limit_s = load_settings().learning.check_timeout_s
        empty = Sample(0, task.name, arm, "ungraded", "")
        if task.folder:
            await self._terminal.files.upload(Path(task.folder), folder)
        if task.setup:
            prepared = await run_check(self._terminal, task.setup, limit_s, cwd=folder)
            if prepared.exit_code != 0:
                return replace(empty, detail=flatten(f"setup: {prepared.detail}", _DETAIL))
        sample = await self._converse(folder, task, empty)
        checked = await run_check(self._terminal, task.check, limit_s, cwd=folder)
        evidence = checked.evidence
        result: Result = "ungraded" if evidence is None else "succeeded" if evidence.succeeded else "failed"
        return replace(sample, result=result, detail=flatten(checked.detail, _DETAIL))

    async def _converse(self, folder: str, task: Task, sample: Sample) -> Sample:
        """Ask for the task in a new conversation, and return the sample with what that took."""
        models = self._models()
        context = Context(
            self._terminal, self._plan.target, self._person, "", model=models.main.name, models=models,
            approvals=self._approvals, repair_skills=False, participant=Participant(is_guest=True),
            data=self._scratch / "data", folder=folder, journal=self._journal if sample.arm == "with" else None,
        )  # fmt: skip
        await asyncio.to_thread(self._choose_skills, context, sample.arm)
        classes = [each for each in find_tools(load_settings().agent.tools) if each.name not in _OMITTED]
        options = Options(budget=self._plan.budget, unattended=True, parent=STREAM)
        try:
            conversation = Conversation(
                models=models, tools=create_instances(classes, context), context=context, log=self._log, options=options
            )
            await conversation.begin()
            answer = await conversation.ask(task.instruction)
        finally:
            await shield_to_completion(context.close(), limit_s=None)
        events = await asyncio.to_thread(self._log.events, conversation.id)
        usage = conversation.usage
        return replace(
            sample,
            calls=answer.calls,
            tokens=usage.prompt + usage.completion,
            cost=usage.cost,
            loaded=self._is_loaded(events, sample.arm),
            conversation=conversation.id,
        )

    def _choose_skills(self, context: Context, arm: Arm) -> None:
        """Let the conversation read the person's skills, without the measured one in the arm without it."""
        if not default_home().log.exists():
            return
        from hermes_exec_agent.learning.measured_registry import MeasuredRegistry

        subject = self._plan.subject
        versions = {subject.text: subject.version if arm == "with" else 0} if subject.kind == "skill" else {}
        context.service(Skillset).registry = MeasuredRegistry(self._scratch, versions)

    def _is_loaded(self, events: Sequence[Event], arm: Arm) -> bool:
        subject = self._plan.subject
        if subject.kind == "entry":
            return arm == "with"
        return any(each.kind == "skill" and each.data.get("name") == subject.text for each in events)


def read_tasks(path: Path) -> tuple[Task, ...]:
    """Return the tasks of a file, one JSON object a line; a folder is relative to the file.

    Raises:
        UsageError: a line is not a task; the message names it.
        ConfigError: the file cannot be read.
    """
    tasks: list[Task] = []
    for number, line in enumerate(read_regular(path).decode("utf-8", "replace").splitlines(), 1):
        if line.strip():
            tasks.append(_parse_task(line, path, number))
    names = [each.name for each in tasks]
    if not tasks:
        raise UsageError(f"{to_printable(path)}: there is no task in it", remedy=_FORM)
    if len(set(names)) < len(names):
        raise UsageError(f"{to_printable(path)}: two tasks have the same name")
    return tuple(tasks)


def _parse_task(line: str, path: Path, number: int) -> Task:
    where = f"{to_printable(path)}: line {number}"
    try:
        fields: dict[str, Any] = dict(json.loads(line))
    except (ValueError, TypeError, RecursionError):
        raise UsageError(f"{where} is not a JSON object", remedy=_FORM) from None
    fields = {"name": str(number), "folder": "", "setup": "", **fields}
    if sorted(fields) != sorted(_FIELDS) or not all(isinstance(value, str) for value in fields.values()):
        raise UsageError(f"{where} is not a task", remedy=_FORM)
    if not fields["instruction"].strip() or not fields["check"].strip():
        raise UsageError(f"{where} has an empty instruction or check", remedy=_FORM)
    if fields["folder"]:
        folder = (path.parent / fields["folder"]).absolute()
        if not folder.is_dir():
            raise UsageError(f"{where}: {to_printable(folder)} is not a folder")
        fields["folder"] = str(folder)
    return Task(**{**fields, "name": flatten(fields["name"], 60)})
