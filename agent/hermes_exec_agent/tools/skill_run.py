"""The tool that runs a skill; one that fails is repaired if permitted, and run once more."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import Field

from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.quoting import quote_name
from hermes_exec_agent.tools import reader
from hermes_exec_agent.tools.base import BaseTool, ToolArguments
from hermes_exec_agent.tools.delivery import deliver
from hermes_exec_agent.tools.dispatch import parse_arguments
from hermes_exec_agent.tools.envelope import Envelope, Failure
from hermes_exec_agent.tools.provenance import list_origins
from hermes_exec_agent.tools.skillset import SANDBOX, Skillset
from hermes_exec_agent.tools.tool import approve, check_approval, to_safe_line

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.skills.registry.record import Version
    from hermes_exec_agent.skills.run.outcome import SkillOutcome
    from hermes_exec_agent.tools.tool import Context

_LOG = 2000
"""Characters of a failed skill's log that are shown."""
_MANAGE = "skill_manage"
"""The tool whose approval a change of a skill needs."""


class SkillRunArguments(ToolArguments):
    """Run a skill in a sandbox of its own. Its files are copied to the person's data folder."""

    name: str = Field(min_length=1)
    arguments: str = Field("{}", description="JSON object")
    version: int = Field(0, ge=0, description="0 is the current one")
    copy_to: str = Field("", description="Copy its files to this folder of the target, too")


class SkillRun(BaseTool[SkillRunArguments]):
    """Runs skills."""

    name = "skill_run"
    position = 110
    arguments_type = SkillRunArguments

    def summary(self, args: SkillRunArguments) -> str:
        """Return the skill and its arguments."""
        return f"{args.name} {args.arguments}"

    async def stays_inside(self, args: SkillRunArguments, context: Context) -> bool:  # noqa: ARG002  its sandbox decides
        """Whether it acts in the workspace alone: a sandbox contains it, or `run` asks a person."""
        return True

    async def run(self, args: SkillRunArguments, context: Context) -> Envelope:
        """Run the skill, and count the run; if the skill itself is at fault, run its next version."""
        from hermes_exec_agent.skills.run.denials import SECURITY

        try:
            arguments = parse_arguments(args.arguments)
        except ValueError as error:
            raise UsageError(f"arguments are not a JSON object: {error}", remedy='{"name": "value"}') from error
        version = context.service(Skillset).registry.version(args.name, args.version or None)
        envelope, outcome = await self._run_once(version, args, arguments, context)
        if outcome.ok or outcome.kind == SECURITY:
            return envelope
        try:
            better = await self._repair(version, args, outcome, arguments, context)
        except HermesError as error:
            return _add_note(envelope, f"it was not improved: {error}")
        if better is None:
            return envelope
        failed = f"{version.name} {version.number} failed ({outcome.error})"
        try:
            envelope, _ = await self._run_once(better, args, arguments, context)
        except HermesError as error:
            return _add_note(envelope, f"{failed}; version {better.number} is registered, and did not run: {error}")
        return _add_note(envelope, f"{failed}; it was improved, and this is of version {better.number}")

    async def _run_once(
        self, version: Version, args: SkillRunArguments, arguments: dict[str, Any], context: Context
    ) -> tuple[Envelope, SkillOutcome]:
        from hermes_exec_agent.skills.registry.content import private_folder
        from hermes_exec_agent.skills.run import runner

        skills = context.service(Skillset)
        agreed = await self._has_consent(version, args, context)
        await reader.ask_for_folders(self.name, version, context)
        with private_folder() as folder:
            outcome = await runner.run(
                skills.registry, version.name, arguments, number=version.number, files=folder / "files",
                self_tested=agreed, model=context.model,
            )  # fmt: skip
            context.record("skill", {"name": version.name, "version": version.number, "outcome": outcome.kind or "ok"})
            if not outcome.ok:
                return self._failure_envelope(outcome, arguments, context), outcome
            kept = deliver(folder / "files", outcome.files, skills.data)
            if args.copy_to:
                kept += await _copy_to_target(folder / "files", outcome.files, args.copy_to, context)
        skills.failures.pop(version.name, None)
        text, reference = await context.workspace.shorten(json.dumps(outcome.result, ensure_ascii=False))
        notes = [
            *([f"files: {', '.join(map(quote_name, kept))}"] if kept else []),
            *(f"left behind: {quote_name(each)}" for each in outcome.left),
        ]
        envelope = Envelope(
            ok=True, place=SANDBOX, output=text, output_ref=reference, truncated=bool(reference),
            note="; ".join(notes), duration_s=outcome.seconds,
            origins=list_origins(version, skills.registry.skill(version.name)),
        )  # fmt: skip
        return envelope, outcome

    async def _repair(
        self,
        version: Version,
        args: SkillRunArguments,
        outcome: SkillOutcome,
        arguments: dict[str, Any],
        context: Context,
    ) -> Version | None:
        """Return the repaired version; None if no repair is attempted.

        Raises:
            HermesError: the repair failed; the message has the cause.
        """
        from hermes_exec_agent.skills.build.repair import FailedRun, NotRepaired, find_obstacle, repair

        skills = context.service(Skillset)
        if args.version or skills.repair_model is None or version.name in skills.repaired:
            return None
        if why := find_obstacle(skills.registry.skill(version.name), version, outcome):
            raise NotRepaired(why)
        summary = f"improve {version.name} {version.number}, which failed: {outcome.error}"
        if no := await check_approval(_MANAGE, summary, context, stays=True):
            raise NotRepaired(no.message)
        skills.repaired.add(version.name)
        failed = FailedRun(version, arguments, outcome.error, outcome.logs)
        better = await repair(skills.builder, skills.repair_model, failed, context.request)
        context.record("skill", {"name": better.name, "version": better.number, "outcome": "registered"})
        return better

    async def _has_consent(self, version: Version, args: SkillRunArguments, context: Context) -> bool:
        """Whether a person approves a run of a skill that is self-tested."""
        if not version.self_tested or context.approvals.tools.get(self.name) == "allow":
            return True
        why = f"cases from outside do not cover all of {version.name} {version.number}; run it with {args.arguments}?"
        try:
            return await approve(self.name, to_safe_line(why), context)
        except HermesError:
            return False  # no person can be asked

    def _failure_envelope(self, outcome: SkillOutcome, arguments: dict[str, Any], context: Context) -> Envelope:
        from hermes_exec_agent.skills.run.denials import SECURITY

        if outcome.denied:
            context.tell(outcome.denied)
        if outcome.kind == SECURITY:  # no repair: a model must not work around a security check
            message = f"{outcome.name} {outcome.version}: {outcome.error}. It is kept back now"
            return Envelope(ok=False, place=SANDBOX, duration_s=outcome.seconds, error=Failure("refused", message))
        registry = context.service(Skillset).registry
        origins = list_origins(registry.version(outcome.name, outcome.version), registry.skill(outcome.name))
        context.service(Skillset).failures[outcome.name] = (
            f"with the arguments {json.dumps(arguments)[:_LOG]}: {outcome.error}\n{outcome.logs[-_LOG:]}"
        )
        message = f"{outcome.name} {outcome.version}: {outcome.error}"
        remedy = "other arguments, or skill_manage with the action improve"
        return Envelope(
            ok=False, place=SANDBOX, output=outcome.logs[-_LOG:], duration_s=outcome.seconds, origins=origins,
            note="it failed too often and is kept back now" if outcome.quarantined else "",
            error=Failure("skill_failed", f"{message}. Try: {remedy}"),
        )  # fmt: skip


def _add_note(envelope: Envelope, note: str) -> Envelope:
    return replace(envelope, note="; ".join(filter(None, [note, envelope.note])))


async def _copy_to_target(source: Path, files: tuple[str, ...], folder: str, context: Context) -> list[str]:
    """Copy files to the target of the conversation."""
    done: list[str] = []
    for file in files:
        path = await context.workspace.path(f"{folder}/{file}")
        await context.terminal.files.write(path, (source / file).read_bytes(), parents=True)
        done.append(f"{path} in {context.place}")
    return done
