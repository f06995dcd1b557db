"""Build an agent's skills: a model drafts, the gate validates, and the registry stores.

The model receives reasons that it can fix, three times at most, and never the same ones twice. A refusal for security
ends the attempts at once: the model reads one sentence without the findings, and the person's log has all of them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError, Refused, UsageError
from hermes_exec_agent.models.messages import Message
from hermes_exec_agent.models.protocol import complete
from hermes_exec_agent.quoting import quote
from hermes_exec_agent.skills.build.cases import derive_file_case, list_required, parse_examples, request_cases
from hermes_exec_agent.skills.build.draft import (
    DRAFT_PROMPT,
    Draft,
    UnreadableReply,
    describe_improvement,
    describe_rejection,
    describe_task,
    parse_draft,
)
from hermes_exec_agent.skills.registry import content
from hermes_exec_agent.skills.registry.admission import (
    create_unconfined_error,
    list_expected_files,
    validate_and_register,
)
from hermes_exec_agent.skills.registry.content import private_folder
from hermes_exec_agent.skills.registry.record import Author, Origin
from hermes_exec_policies.gate import verdict
from hermes_exec_policies.gate.analysis.signature import describe_signature
from hermes_exec_policies.gate.cases import find_named_files, find_unseen_files
from hermes_exec_policies.gate.child_process import ChildProcess, Unanswered
from hermes_exec_policies.gate.skill_names import find_name_problem, module_name
from hermes_exec_policies.gate.tree import SkillTreeWriter, Tree
from hermes_exec_policies.gate.verdict import Kind, Report

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from hermes_exec_agent.models.protocol import Model
    from hermes_exec_agent.skills.registry.record import Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_policies.gate.cases import Case


_log = logging.getLogger("hermes_exec.skills")
DENIED = "Sandbox Jailbreak"
_CPU_S = 10
"""The CPU time in which the signature of a draft is read."""


MAX_RETRIES = 3
"""Repairs after the first attempt."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One candidate, and why it was not accepted, in words that a model may read."""

    number: int
    outcome: str
    """``functional``, ``security``, or ``incomplete``."""
    reasons: tuple[str, ...]


class NotRegistered(HermesError):
    """A skill did not pass the gate, and no further attempt is made. It has every attempt."""

    state = "nothing was registered"

    def __init__(self, name: str, why: str, attempts: tuple[Attempt, ...], *, remedy: str = "") -> None:
        self.attempts = attempts
        self.security = bool(attempts) and attempts[-1].outcome == Kind.SECURITY
        tried = f" after {len(attempts)} attempts" if len(attempts) > 1 else ""
        super().__init__(f"{name} was not registered{tried}: {why}", remedy=remedy)


class Rejected(Refused):
    """A candidate did not pass the gate, and may be fixed; nothing was registered."""

    state = "nothing was registered"

    def __init__(self, name: str, reasons: Sequence[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__(f"{name} was not accepted: {'; '.join(reasons)}", remedy="fix that, and send all files again")


@dataclass(slots=True)
class Attempts:
    """The attempts at one skill. When they are exhausted, they stay so for the whole conversation."""

    name: str
    made: list[Attempt] = field(default_factory=list[Attempt])
    final_error: NotRegistered | None = None
    _diagnosis: frozenset[tuple[str, str]] = frozenset()

    def check(self) -> None:
        """Check that another attempt is permitted.

        Raises:
            NotRegistered: it is not.
        """
        if self.final_error is not None:
            raise self.final_error

    def count_failure(self, report: Report) -> Attempt:
        """Count a candidate that was not accepted, and return it.

        Raises:
            NotRegistered: it was the last attempt.
        """
        diagnosis = frozenset((each.code, each.model) for each in report.findings if each.kind is Kind.FUNCTIONAL)
        wrong = tuple(dict.fromkeys(each.model for each in report.findings if each.kind is Kind.FUNCTIONAL))
        reasons = tuple(report.reasons[:1]) if report.security else wrong or ("its validation could not be completed",)
        return self._count(report.outcome, reasons, diagnosis)

    def count_unreadable(self, why: str) -> Attempt:
        """Count a reply without a candidate.

        Raises:
            NotRegistered: it was the last attempt.
        """
        return self._count(str(Kind.FUNCTIONAL), (why,), frozenset({("draft.format", why)}))

    def _count(self, outcome: str, reasons: tuple[str, ...], diagnosis: frozenset[tuple[str, str]]) -> Attempt:
        attempt = Attempt(len(self.made) + 1, outcome, reasons)
        self.made.append(attempt)
        again, self._diagnosis = bool(diagnosis) and diagnosis == self._diagnosis, diagnosis
        why, remedy = "; ".join(reasons), ""
        if outcome == Kind.SECURITY:
            over = True
        elif again:
            over, why, remedy = True, f"the same as before: {why}", "do it in another way, or ask the person"
        else:
            over, remedy = len(self.made) > MAX_RETRIES, "a simpler task, or ask the person"
        if over:
            self.final_error = NotRegistered(self.name, why, tuple(self.made), remedy=remedy)
            raise self.final_error
        return attempt

    def begin(self) -> None:
        """Start a new round, after a candidate was registered."""
        self.made, self._diagnosis = [], frozenset()


def _ignore(_: str) -> None:
    """Ignore the line."""


async def _refuse(_: str) -> bool:
    """Refuse."""
    return False


def _of_agent() -> Origin:
    """Return the origin of a skill that was made from a person's words."""
    return Origin(kind="agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requester:
    """The agent that skills are built for."""

    model: str
    """The model that is recorded as the author."""
    shells: tuple[str, ...] | None
    """The kinds of targets in which the agent runs commands."""
    tell: Callable[[str], None] = _ignore
    """Shows the person one line."""
    agree: Callable[[str], Awaitable[bool]] = _refuse
    """Asks the person whether an agent that could bypass the gate may register a skill nevertheless."""
    origin: Callable[[], Origin] = _of_agent
    """Returns the origin of a skill that is registered now."""


class SkillBuilder:
    """Builds the skills of one conversation."""

    def __init__(
        self,
        registry: Registry,
        maker: Requester,
        model: Model | None = None,
        *,
        judge: Model | None = None,
        cases: Sequence[Case] = (),
    ) -> None:
        """``model`` drafts, ``judge`` writes held-out cases (``model`` if left out); ``cases`` are a person's."""
        self.registry = registry
        self._maker = maker
        self._model = model
        self._judge = judge or model
        self.person_cases = tuple(cases)
        self._known: dict[str, tuple[Case, ...]] = {}
        """The cases that a person gave for each skill."""
        self._separate: dict[str, tuple[Case, ...]] = {}
        """The cases of a separate context for each skill, once requested."""
        self._files: dict[str, frozenset[str]] = {}
        """The files that each skill is expected to leave."""
        self._attempts: dict[str, Attempts] = {}

    async def compile(self, name: str, task: str, request: str = "") -> Version:
        """Draft a skill for a task that no tool fits, and register it.

        Args:
            name: of the new skill.
            task: of the skill.
            request: the person's own words, in which literal examples are cases that the skill must pass.

        Raises:
            NotRegistered: it did not pass; the error has every attempt.
            UsageError: the name is invalid or taken.
            Refused: the agent may not register skills.
            ModelError: the model returned no draft.
        """
        name = self._parse_name(name)
        if name in self.registry.skills():
            raise UsageError(f"there is a skill {name} already", remedy="improve or patch that one")
        self._maker.tell("[Core] No tool found for task...")
        prompt = describe_task(task, request)
        self._files[name] = frozenset(find_named_files(f"{task}\n\n{request}"))
        return await self._draft_until_accepted(
            name, task, request, prompt, (*self.person_cases, *parse_examples(request))
        )

    async def improve(self, name: str, failure: str, *, request: str = "", again: Sequence[Case] = ()) -> Version:
        """Change a registered skill that failed in use, and register the change as its next version.

        It must pass the cases of the current version.

        Args:
            name: of the skill.
            failure: the error, for the model that fixes it.
            request: the person's own words; examples in them that call this skill are cases too.
            again: calls that failed, and must return a result now.

        Raises:
            NotRegistered: it did not pass; the current version stays.
            UsageError: the skill does not exist.
            Refused: the agent may not register skills, or the skill's files were changed.
            ModelError: the model returned no draft.
        """
        version = self.registry.version(name)
        files = await self.files(version)
        tests = "\n".join(text for path, text in files.items() if path.startswith("tests/"))
        about = quote(version.summary)
        prompt = f"{about}\n\n{describe_improvement(files[version.entry], tests, failure)}"
        known = list_required(version, self.person_cases, request)
        self._files[version.name] = frozenset(list_expected_files(version))
        return await self._draft_until_accepted(version.name, about, "", prompt, known, again)

    async def submit(self, name: str, files: Mapping[str, str]) -> Version:
        """Validate files that the agent wrote itself, and register them as the next version of a skill.

        Raises:
            NotRegistered: they did not pass, and no further attempt is permitted.
            Rejected: they did not pass, and may be fixed.
            Refused: the agent may not register skills.
        """
        name = self._parse_name(name)
        attempts = self._attempts.setdefault(name, Attempts(name))
        attempts.check()
        insist = await self._may_register(name)
        version, report = await self._validate(name, files, self._list_required(name), insist=insist)
        if version is not None:
            attempts.begin()
            return version
        raise Rejected(name, attempts.count_failure(report).reasons)

    async def files(self, version: Version) -> dict[str, str]:
        """Return the text files of a registered version, each compared with the signed list.

        Raises:
            Changed: they differ from the signed list.
        """
        found: dict[str, str] = {}
        with private_folder() as folder:
            content.copy_verified(self.registry.tree(version), version.files, folder / "tree")
            for each in version.files:
                data = (folder / "tree" / each.path).read_bytes()
                if b"\0" not in data:
                    found[each.path] = data.decode("utf-8", "replace")
        return found

    async def _draft_until_accepted(
        self, name: str, task: str, request: str, prompt: str, known: Sequence[Case], again: Sequence[Case] = ()
    ) -> Version:
        """Draft, validate and fix until a version is registered or attempts end; ``known`` are given cases."""
        self._known[name] = tuple(known)
        self._separate.pop(name, None)
        if self._model is None:
            raise UsageError("there is no model that could write a skill", remedy="write its files yourself")
        attempts = self._attempts.setdefault(name, Attempts(name))
        attempts.check()
        insist = await self._may_register(name)
        module = module_name(name)
        talk = [Message("system", DRAFT_PROMPT.replace("{module}", module)), Message("user", prompt)]
        while True:
            self._maker.tell(f"[Compiler] Drafting '{module}.py'...")
            reply = await complete(self._model, talk, schema=Draft.model_json_schema())
            try:
                draft = parse_draft(reply.message.content)
            except UnreadableReply as error:
                reasons = attempts.count_unreadable(str(error)).reasons
            else:
                cases = await self._collect_cases(name, task, request, draft)
                version, report = await self._validate(name, draft.files(name), (*cases, *again), insist=insist)
                if version is not None:
                    attempts.begin()
                    return version
                reasons = attempts.count_failure(report).reasons
            talk += [Message("assistant", reply.message.content), Message("user", describe_rejection(reasons))]

    async def _collect_cases(self, name: str, task: str, request: str, draft: Draft) -> tuple[Case, ...]:
        """Return the cases that a draft must pass: given ones, and those of a separate context if these are not enough.

        They are not enough if the draft's author has read all of them, or if a named file is in none of them. The
        separate context is asked once, so that the cases stay the same while the draft is fixed.
        """
        known = self._known[name]
        if name not in self._separate:
            call, schema = await _describe_signature(draft.script, module_name(name))
            if not call:
                return known  # there is no function to call yet
            files = self._files[name] | find_named_files(draft.files(name)["SKILL.md"])
            unseen = [each for each in known if each.source.unseen]
            found: list[Case] = []
            if self._judge is not None and (not unseen or find_unseen_files(files, [each.files for each in unseen])):
                found = await request_cases(self._judge, task, request, call, schema, known)
            self._separate[name] = (*found, *derive_file_case(found, known, request))
        return (*known, *self._separate[name])

    def _list_required(self, name: str) -> tuple[Case, ...]:
        return (*self._known.get(name, self.person_cases), *self._separate.get(name, ()))

    async def _validate(
        self, name: str, files: Mapping[str, str], cases: Sequence[Case], *, insist: bool
    ) -> tuple[Version | None, Report]:
        """Let the gate validate the files, register them if they pass, and show the person the outcome."""
        with private_folder() as folder:
            try:
                tree = write_tree(files, folder / name)
            except verdict.SkillRefused as error:
                report = Report(error.findings)
                self._report(name, report)
                return None, report
            author = Author(kind="agent", model=self._maker.model, shells=self._maker.shells)
            admitted = await validate_and_register(
                self.registry,
                tree,
                author=author,
                cases=cases,
                files=self._files.get(name, ()),
                insist=insist,
                origin=self._maker.origin(),
            )
        self._report(name, admitted.report)
        if admitted.version is not None:
            self._maker.tell(f"[Core] Skill '{module_name(name)}' successfully registered.")
        return admitted.version, admitted.report

    def _report(self, name: str, report: Report) -> None:
        if verdict.SUITES in report.seconds:
            code = 0 if report.accepted else 1
            self._maker.tell(f"[Sandbox] Executing validation suite... Exit code: {code}")
        elif not report.accepted:
            self._maker.tell(f"[Gate] '{module_name(name)}.py' was refused before anything of it ran.")
        denied = [each.operator for each in report.findings if each.operator.startswith(DENIED)]
        for line in denied[:1]:
            self._maker.tell(line)
        for each in report.findings:
            if each.kind is Kind.SECURITY:
                _log.warning("%s: %s %s: %s", name, each.code, each.path, each.operator)

    async def _may_register(self, name: str) -> bool:
        """Return whether a person's approval was needed to register the skill, and given.

        Raises:
            Refused: it was needed, and not given.
        """
        author = Author(kind="agent", model=self._maker.model, shells=self._maker.shells)
        if author.is_confined:
            return False
        why = f"{self._maker.model} runs commands without a sandbox; register {name} as unprotected all the same?"
        if not await self._maker.agree(why):
            raise create_unconfined_error(author)
        return True

    def _parse_name(self, name: str) -> str:
        name = name.replace("_", "-").lower()
        if wrong := find_name_problem(name):
            raise UsageError(
                f"{name!r} is not a valid name of a skill: {wrong}", remedy="generate-csv-report, for example"
            )
        return name


async def _describe_signature(script: str, module: str) -> tuple[str, dict[str, Any]]:
    """Return the signature of a draft's function as text and as JSON Schema; both are empty if it cannot be read."""
    try:
        async with ChildProcess() as child:
            return await child.call(_CPU_S, describe_signature, script, module)
    except Unanswered:
        return "", {}  # the gate says why


def write_tree(files: Mapping[str, str], root: Path) -> Tree:
    """Write files to a new tree.

    Raises:
        verdict.Refused: a path or a size exceeds the limits.
    """
    writer = SkillTreeWriter(root)
    for path, text in files.items():
        writer.add(path, False, text.encode("utf-8", "replace"))
    return writer.tree()
