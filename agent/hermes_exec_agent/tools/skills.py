"""Skills: what there is, what one says, and running one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import Field

from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.tools.approvals import safe
from hermes_exec_agent.tools.asking import Asked, BaseTool
from hermes_exec_agent.tools.calling import parsed
from hermes_exec_agent.tools.delivery import deliver
from hermes_exec_agent.tools.envelope import Envelope, Failure
from hermes_exec_agent.tools.planning import HERE
from hermes_exec_agent.tools.skillset import SANDBOX

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.skills.record import Version
    from hermes_exec_agent.skills.running import Outcome
    from hermes_exec_agent.tools.skillset import Skillset
    from hermes_exec_agent.tools.tool import Context

_LOG = 2000
"""Characters of a failed skill's log that are shown."""


class Listing(Asked):
    """List skills: functions that were proven for a kind of task. Look here before you write one."""

    query: str = Field("", description="Words that occur in name or summary")
    offset: int = Field(0, ge=0)
    limit: int = Field(50, ge=1, le=200)


class SkillsList(BaseTool[Listing]):
    """Lists skills."""

    name = "skills_list"
    changes = False
    takes = Listing

    def __init__(self, skills: Skillset) -> None:
        super().__init__()
        self._skills = skills

    async def run(self, asked: Listing, context: Context) -> Envelope:  # noqa: ARG002  it touches no place
        """List them by name."""
        words = asked.query.lower().replace("_", "-").split()
        found = [
            each
            for each in self._skills.registry.listed()
            if all(word in f"{each['name']} {each['summary']}".lower() for word in words)
        ]
        lines = [
            f"{each['name']} {each['version']} ({each['level']}, {each['state']}): {each['summary']}"
            for each in found[asked.offset : asked.offset + asked.limit]
        ]
        more = len(found) - asked.offset - len(lines)
        note = f"there are {more} more: offset {asked.offset + len(lines)}" if more > 0 else ""
        return Envelope(ok=True, place=HERE, output="\n".join(lines) or "none", truncated=more > 0, note=note)


class Viewing(Asked):
    """Read what a skill says of itself and which arguments it takes, or one of its files."""

    name: str = Field(min_length=1)
    file_path: str = Field("", description="Such as scripts/x.py")


class SkillView(BaseTool[Viewing]):
    """Shows one skill, as little of it as is needed."""

    name = "skill_view"
    changes = False
    takes = Viewing

    def __init__(self, skills: Skillset) -> None:
        super().__init__()
        self._skills = skills

    async def run(self, asked: Viewing, context: Context) -> Envelope:
        """Show it, compared with what was signed."""
        version = self._skills.registry.version(asked.name)
        files = await self._skills.workshop.files(version)
        if asked.file_path:
            if asked.file_path not in files:
                raise UsageError(f"{version.name} has no file {asked.file_path!r}", remedy=f"one of {', '.join(files)}")
            text = files[asked.file_path]
        else:
            body = files["SKILL.md"].split("\n---\n", 1)[-1].strip()
            text = f"{body}\n\nFiles: {', '.join(files)}\n{told(version)}"
        shown, reference = await context.workspace.shortened(text)
        return Envelope(ok=True, place=HERE, output=shown, truncated=bool(reference), output_ref=reference)


def told(version: Version) -> str:
    """What is known of a version, in a line."""
    schema = {key: value for key, value in version.schema.items() if key != "$schema"}
    return f"{version.name} {version.number}, evidence: {version.level}. Arguments: {json.dumps(schema)}"


class Running(Asked):
    """Run a skill in a sandbox of its own. Files that it leaves come into the person's data folder."""

    name: str = Field(min_length=1)
    arguments: str = Field("{}", description="JSON object")
    version: int = Field(0, ge=0, description="0 is the current one")
    copy_to: str = Field("", description="Copy its files to this folder of the place, too")


class SkillRun(BaseTool[Running]):
    """Runs skills."""

    name = "skill_run"
    takes = Running

    def __init__(self, skills: Skillset) -> None:
        super().__init__()
        self._skills = skills

    def summary(self, asked: Running) -> str:
        """Which one, with what."""
        return f"{asked.name} {asked.arguments}"

    async def run(self, asked: Running, context: Context) -> Envelope:
        """Run it once, and count how it went."""
        from hermes_exec_agent.skills import running
        from hermes_exec_agent.skills.private import private_folder

        try:
            arguments = parsed(asked.arguments)
        except ValueError as error:
            raise UsageError(f"arguments are no JSON object: {error}", remedy='{"name": "value"}') from error
        registry = self._skills.registry
        version = registry.version(asked.name, asked.version or None)
        agreed = await self._agreed(version, asked, context)
        with private_folder() as folder:
            outcome = await running.run(
                registry, version.name, arguments, number=version.number, files=folder / "files", self_tested=agreed,
                model=context.model,
            )  # fmt: skip
            context.record("skill", {"name": version.name, "version": version.number, "outcome": outcome.kind or "ok"})
            if not outcome.ok:
                return self._failed(outcome, arguments, context)
            kept = deliver(folder / "files", outcome.files, self._skills.data)
            if asked.copy_to:
                kept += await _copied(folder / "files", outcome.files, asked.copy_to, context)
        self._skills.failures.pop(version.name, None)
        text, reference = await context.workspace.shortened(json.dumps(outcome.result, ensure_ascii=False))
        notes = [*([f"files: {', '.join(kept)}"] if kept else []), *(f"left behind: {each}" for each in outcome.left)]
        return Envelope(
            ok=True, place=SANDBOX, output=text, output_ref=reference, truncated=bool(reference),
            note="; ".join(notes), duration_s=outcome.seconds,
        )  # fmt: skip

    async def _agreed(self, version: Version, asked: Running, context: Context) -> bool:
        """Whether a person agreed to run what nothing but its own tests speaks for."""
        from hermes_exec_agent.skills.checks import SELF_TESTED

        if version.level != SELF_TESTED or context.approvals.tools.get(self.name) == "allow":
            return True
        why = f"nothing but its own tests speaks for {version.name} {version.number}; run it with {asked.arguments}?"
        try:
            return await context.person.approve(self.name, safe(why))
        except HermesError:
            return False  # nobody is there

    def _failed(self, outcome: Outcome, arguments: dict[str, Any], context: Context) -> Envelope:
        from hermes_exec_agent.skills.denials import SECURITY

        if outcome.denied:
            context.tell(outcome.denied)
        if outcome.kind == SECURITY:  # it is not mended: nobody works against what saw it
            said = f"{outcome.name} {outcome.version}: {outcome.error}. It is kept back now"
            return Envelope(ok=False, place=SANDBOX, duration_s=outcome.seconds, error=Failure("refused", said))
        self._skills.failures[outcome.name] = (
            f"with the arguments {json.dumps(arguments)[:_LOG]}: {outcome.error}\n{outcome.logs[-_LOG:]}"
        )
        said = f"{outcome.name} {outcome.version}: {outcome.error}"
        remedy = "other arguments, or skill_manage with the action improve"
        return Envelope(
            ok=False, place=SANDBOX, output=outcome.logs[-_LOG:], duration_s=outcome.seconds,
            note="it failed too often and is kept back now" if outcome.quarantined else "",
            error=Failure("skill_failed", f"{said}. Try: {remedy}"),
        )  # fmt: skip


async def _copied(source: Path, files: tuple[str, ...], folder: str, context: Context) -> list[str]:
    """Copy files into the place of the conversation."""
    done: list[str] = []
    for file in files:
        path = await context.workspace.path(f"{folder}/{file}")
        await context.terminal.files.write(path, (source / file).read_bytes(), parents=True)
        done.append(f"{path} in {context.place}")
    return done
