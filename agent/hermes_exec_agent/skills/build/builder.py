"""Where an agent's skills are made: drafted by a model, judged by the gate, registered, or given up.

A model is told what it can mend, three times at most, and not twice the same. What the gate refuses for security ends
it at once: the model reads one sentence that says nothing of what was found, and the person's log has all of it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError, Refused, UsageError
from hermes_exec_agent.models.messages import Message
from hermes_exec_agent.models.protocol import complete
from hermes_exec_agent.quoting import quote
from hermes_exec_agent.skills.build.cases import examples, held_to, said_of, separate
from hermes_exec_agent.skills.build.draft import (
    DRAFT_PROMPT,
    Draft,
    Unreadable,
    describe_improvement,
    describe_rejection,
    describe_task,
    parse,
    signature,
)
from hermes_exec_agent.skills.registry import content
from hermes_exec_agent.skills.registry.admission import judged, recorded_files, unconfined
from hermes_exec_agent.skills.registry.content import private_folder
from hermes_exec_agent.skills.registry.record import Author
from hermes_exec_policies.gate import verdict
from hermes_exec_policies.gate.files import named_files, unseen_files
from hermes_exec_policies.gate.skill_names import module_name, what_is_wrong
from hermes_exec_policies.gate.tree import Tree, Writer
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


MAX_RETRIES = 3
"""Repairs after the first attempt."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One candidate, and why it was not accepted, in the words that a model may see."""

    number: int
    outcome: str
    """``functional``, ``security``, or ``incomplete``."""
    reasons: tuple[str, ...]


class NotRegistered(HermesError):
    """A skill did not pass the gate, and is not tried again; nothing was registered. Carries every attempt."""

    state = "nothing was registered"

    def __init__(self, name: str, why: str, attempts: tuple[Attempt, ...], *, remedy: str = "") -> None:
        self.attempts = attempts
        self.security = bool(attempts) and attempts[-1].outcome == Kind.SECURITY
        tried = f" after {len(attempts)} attempts" if len(attempts) > 1 else ""
        super().__init__(f"{name} was not registered{tried}: {why}", remedy=remedy)


class Rejected(Refused):
    """A candidate did not pass the gate, and may be mended; nothing was registered."""

    state = "nothing was registered"

    def __init__(self, name: str, reasons: Sequence[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__(f"{name} was not accepted: {'; '.join(reasons)}", remedy="mend that, and send all of it again")


@dataclass(slots=True)
class Attempts:
    """The attempts at one skill. Once it is enough, it is so for the whole conversation."""

    name: str
    made: list[Attempt] = field(default_factory=list[Attempt])
    over: NotRegistered | None = None
    _diagnosis: frozenset[tuple[str, str]] = frozenset()

    def check(self) -> None:
        """See that there may be another one.

        Raises:
            NotRegistered: there may not.
        """
        if self.over is not None:
            raise self.over

    def failed(self, report: Report) -> Attempt:
        """Count one that was not accepted; gives it, to be mended.

        Raises:
            NotRegistered: it was the last one.
        """
        diagnosis = frozenset((each.code, each.model) for each in report.findings if each.kind is Kind.FUNCTIONAL)
        wrong = tuple(dict.fromkeys(each.model for each in report.findings if each.kind is Kind.FUNCTIONAL))
        reasons = tuple(report.reasons[:1]) if report.security else wrong or ("it could not be judged to the end",)
        return self._count(report.outcome, reasons, diagnosis)

    def unreadable(self, why: str) -> Attempt:
        """Count a reply that held no candidate at all.

        Raises:
            NotRegistered: it was the last one.
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
            self.over = NotRegistered(self.name, why, tuple(self.made), remedy=remedy)
            raise self.over
        return attempt

    def begin(self) -> None:
        """A new round, after one that was registered."""
        self.made, self._diagnosis = [], frozenset()


def _drop(_: str) -> None:
    """Whoever wants to be told says so."""


async def _no(_: str) -> bool:
    """Whoever may say yes is named."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """For whom skills are made, and what is known of it."""

    model: str
    """Under whose name a skill is registered."""
    shells: tuple[str, ...] | None
    """The kinds of place in which that agent runs commands."""
    tell: Callable[[str], None] = _drop
    """Shows the person one line."""
    agree: Callable[[str], Awaitable[bool]] = _no
    """Asks the person whether an agent that could go past the gate may register a skill all the same."""


class Workshop:
    """Makes the skills of one conversation."""

    def __init__(
        self,
        registry: Registry,
        maker: Maker,
        model: Model | None = None,
        *,
        judge: Model | None = None,
        cases: Sequence[Case] = (),
    ) -> None:
        """``model`` drafts, ``judge`` makes held-out cases (the same one, if left out); ``cases`` are a person's."""
        self.registry = registry
        self._maker = maker
        self._model = model
        self._judge = judge or model
        self.given = tuple(cases)
        self._known: dict[str, tuple[Case, ...]] = {}
        """What somebody gave that each skill has to hold."""
        self._separate: dict[str, tuple[Case, ...]] = {}
        """The cases of a separate context for each, once that was asked."""
        self._files: dict[str, frozenset[str]] = {}
        """The files that each was asked to leave."""
        self._attempts: dict[str, Attempts] = {}

    async def compile(self, name: str, task: str, request: str = "") -> Version:
        """Have a skill drafted for a task that no tool fits, and register it.

        Args:
            name: of the skill that is to be.
            task: what it has to do.
            request: the person's own words, in which literal examples are cases that it has to hold.

        Raises:
            NotRegistered: it did not pass; carries every attempt.
            UsageError: it cannot be called so, or is there already.
            Refused: who asks is not to register anything.
            ModelError: there was no draft to be had.
        """
        name = self._named(name)
        if name in self.registry.skills():
            raise UsageError(f"there is a skill {name} already", remedy="improve or patch that one")
        self._maker.tell("[Core] No tool found for task...")
        prompt = describe_task(task, request)
        self._files[name] = frozenset(named_files(f"{task}\n\n{request}"))
        return await self._drafted(name, task, request, prompt, (*self.given, *examples(request)))

    async def improve(self, name: str, failure: str, *, request: str = "", again: Sequence[Case] = ()) -> Version:
        """Have a registered skill changed that failed in use, and register the change as its next version.

        It has to hold what the version held that is there.

        Args:
            name: of the skill.
            failure: what went wrong, for whoever mends it.
            request: the person's own words; examples in them that call this skill are cases too.
            again: calls that failed, and have to give a result now.

        Raises:
            NotRegistered: it did not pass; the version that is there stays the current one.
            UsageError: there is no such skill.
            Refused: who asks is not to register anything, or the skill was changed by somebody.
            ModelError: there was no draft to be had.
        """
        version = self.registry.version(name)
        files = await self.files(version)
        tests = "\n".join(text for path, text in files.items() if path.startswith("tests/"))
        about = quote(version.summary)
        prompt = f"{about}\n\n{describe_improvement(files[version.entry], tests, failure)}"
        known = held_to(version, self.given, request)
        self._files[version.name] = frozenset(recorded_files(version))
        return await self._drafted(version.name, about, "", prompt, known, again)

    async def submit(self, name: str, files: Mapping[str, str]) -> Version:
        """Have files judged that an agent wrote itself, and register them as the next version of a skill.

        Raises:
            NotRegistered: they did not pass, and there is no further attempt.
            Rejected: they did not pass, and may be mended.
            Refused: who asks is not to register anything.
        """
        name = self._named(name)
        attempts = self._attempts.setdefault(name, Attempts(name))
        attempts.check()
        insist = await self._may_register(name)
        version, report = await self._judged(name, files, self._held(name), insist=insist)
        if version is not None:
            attempts.begin()
            return version
        raise Rejected(name, attempts.failed(report).reasons)

    async def files(self, version: Version) -> dict[str, str]:
        """The texts of a registered version, each compared with what was signed; files that are no text are left out.

        Raises:
            Changed: they are not what was signed.
        """
        found: dict[str, str] = {}
        with private_folder() as folder:
            content.copy(self.registry.tree(version), version.files, folder / "tree")
            for each in version.files:
                data = (folder / "tree" / each.path).read_bytes()
                if b"\0" not in data:
                    found[each.path] = data.decode("utf-8", "replace")
        return found

    async def _drafted(
        self, name: str, task: str, request: str, prompt: str, known: Sequence[Case], again: Sequence[Case] = ()
    ) -> Version:
        """Draft, judge and mend until it is registered, or enough; ``known`` are cases that somebody gave."""
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
                draft = parse(reply.message.content)
            except Unreadable as error:
                reasons = attempts.unreadable(str(error)).reasons
            else:
                cases = await self._cases_of(name, task, request, draft)
                version, report = await self._judged(name, draft.files(name), (*cases, *again), insist=insist)
                if version is not None:
                    attempts.begin()
                    return version
                reasons = attempts.failed(report).reasons
            talk += [Message("assistant", reply.message.content), Message("user", describe_rejection(reasons))]

    async def _cases_of(self, name: str, task: str, request: str, draft: Draft) -> tuple[Case, ...]:
        """What it has to hold: what somebody gave, and the cases of a separate context where that is not enough.

        It is not where its writer has read all of it, or where a file is named that it says nothing of. The separate
        context is asked once: what a draft has to hold does not change while it is mended.
        """
        known = self._known[name]
        if name not in self._separate:
            call, schema = signature(draft.script, module_name(name))
            if not call:
                return known  # nobody can call what is no function yet; the next draft is asked for
            files = self._files[name] | named_files(draft.files(name)["SKILL.md"])
            unseen = [each for each in known if each.source.unseen]
            found: list[Case] = []
            if self._judge is not None and (not unseen or unseen_files(files, [each.files for each in unseen])):
                found = await separate(self._judge, task, request, call, schema, known)
            self._separate[name] = (*found, *said_of(found, known, request))
        return (*known, *self._separate[name])

    def _held(self, name: str) -> tuple[Case, ...]:
        return (*self._known.get(name, self.given), *self._separate.get(name, ()))

    async def _judged(
        self, name: str, files: Mapping[str, str], cases: Sequence[Case], *, insist: bool
    ) -> tuple[Version | None, Report]:
        """Let the gate judge these files, and register them if they pass. Tells the person what came of it."""
        with private_folder() as folder:
            try:
                tree = written(files, folder / name)
            except verdict.Refused as error:
                report = Report(error.findings)
                self._told(name, report)
                return None, report
            author = Author(kind="agent", model=self._maker.model, shells=self._maker.shells)
            admitted = await judged(
                self.registry, tree, author=author, cases=cases, files=self._files.get(name, ()), insist=insist
            )
        self._told(name, admitted.report)
        if admitted.version is not None:
            self._maker.tell(f"[Core] Skill '{module_name(name)}' successfully registered.")
        return admitted.version, admitted.report

    def _told(self, name: str, report: Report) -> None:
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
        """Whether it takes a person's word to register this, which they gave.

        Raises:
            Refused: it does, and they did not.
        """
        author = Author(kind="agent", model=self._maker.model, shells=self._maker.shells)
        if author.confined:
            return False
        why = f"{self._maker.model} runs commands without a sandbox; register {name} as unprotected all the same?"
        if not await self._maker.agree(why):
            raise unconfined(author)
        return True

    def _named(self, name: str) -> str:
        name = name.replace("_", "-").lower()
        if wrong := what_is_wrong(name):
            raise UsageError(f"{name!r} is no name of a skill: {wrong}", remedy="generate-csv-report, for example")
        return name


def written(files: Mapping[str, str], root: Path) -> Tree:
    """A tree of ours with these files.

    Raises:
        verdict.Refused: a path or a size is out of bounds.
    """
    writer = Writer(root)
    for path, text in files.items():
        writer.add(path, False, text.encode("utf-8", "replace"))
    return writer.tree()
