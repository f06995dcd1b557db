"""The tool that adds and changes skills: every change passes the gate, and nothing is ever deleted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from hermes_exec.errors import Refused, UsageError
from hermes_exec_agent.tools.base import BaseTool, ToolArguments
from hermes_exec_agent.tools.envelope import Envelope, Failure
from hermes_exec_agent.tools.planning import HERE
from hermes_exec_agent.tools.provenance import list_origins
from hermes_exec_agent.tools.skill_list import describe_version
from hermes_exec_agent.tools.skillset import SANDBOX, Skillset, read_files
from hermes_exec_agent.tools.tool import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hermes_exec_agent.skills.registry.record import Version
    from hermes_exec_agent.tools.tool import Context
    from hermes_exec_policies.gate.tree import Tree


class SkillManageArguments(ToolArguments):
    """Make or change a skill: a function, registered only if tests in a sandbox show that it works, or a guide.

    create: where no tool fits; tell what it has to do in task, and it is written for you, or give its files as patch;
    without scripts/main.py it is a guide. improve: let a model fix one that failed. patch: change its files yourself.
    validate: prove it again. restore: an older version, or one from the archive.
    """

    action: Literal["create", "improve", "patch", "validate", "history", "restore", "pin", "archive"]
    name: str = Field(min_length=1, description="Such as generate-csv-report")
    task: str = Field("", description="For create: all that it has to do; for improve: what is wrong")
    patch: str = Field("", description="V4A, paths such as SKILL.md, scripts/main.py, tests/test_main.py")
    version: int = Field(0, ge=0, description="For restore, pin")


class SkillManage(BaseTool[SkillManageArguments]):
    """Adds and changes skills."""

    name = "skill_manage"
    position = 100
    callable_from_scripts = False
    arguments_type = SkillManageArguments

    def needs_approval(self, args: SkillManageArguments) -> bool:
        """Whether it changes a skill."""
        return args.action != "history"

    def summary(self, args: SkillManageArguments) -> str:
        """Return the action and its skill."""
        number = f" {args.version}" if args.version else ""
        return f"{args.action} {args.name}{number} {args.task or args.patch}".strip()

    async def run(self, args: SkillManageArguments, context: Context) -> Envelope:
        """Run the action."""
        match args.action:
            case "create" | "improve" | "patch":
                return await self._build(args, context)
            case "validate":
                return await self._validate(args.name, context)
            case _:
                return self._update(args, context)

    async def _build(self, args: SkillManageArguments, context: Context) -> Envelope:
        with Stopwatch() as watch:
            version = await self._write_guide(args, context) or await self._build_version(args, context)
        context.service(Skillset).failures.pop(version.name, None)
        context.record("skill", {"name": version.name, "version": version.number, "outcome": "registered"})
        return _describe_registration(version, context, watch.elapsed_s)

    async def _write_guide(self, args: SkillManageArguments, context: Context) -> Version | None:
        """Register the guide that a patch makes or changes; return None if the call is of a function."""
        from hermes_exec_agent.skills.registry.content import private_folder
        from hermes_exec_agent.skills.registry.guides import register_guide
        from hermes_exec_agent.skills.registry.record import Author, Origin
        from hermes_exec_policies.gate.skill_names import module_name

        skills = context.service(Skillset)
        before = skills.registry.skills().get(normalize_name(args.name))
        version = skills.registry.read_version(before) if before is not None else None
        if args.action == "improve" and version is not None and not version.is_function:
            raise UsageError(f"{version.name} is a guide, which has no tests", remedy="the action patch")
        if not args.patch or args.action not in {"create", "patch"}:
            return None
        files = self._patch_files(args, skills)
        name = normalize_name(args.name)
        if {"scripts/main.py", f"scripts/{module_name(name)}.py"} & set(files):
            return None
        origin = skills.origin(guide=True)
        if version is not None and before is not None and list_origins(version, before):
            origin = Origin(kind="untrusted")  # a change does not make untrusted text the agent's own
        with private_folder() as folder:
            write_files(files, folder / name, version)
            author = Author(kind="agent", model=context.model, shells=(context.terminal.kind,))
            result = await register_guide(skills.registry, folder / name, author=author, origin=origin)
        if result.version is None:
            raise UsageError(f"{name} was not registered: {'; '.join(result.report.reasons)}", remedy="fix its files")
        return result.version

    async def _build_version(self, args: SkillManageArguments, context: Context) -> Version:
        skills = context.service(Skillset)
        shop = skills.builder
        if args.action == "improve":
            failure = "\n".join(filter(None, [args.task, skills.failures.get(normalize_name(args.name), "")]))
            if not failure:
                raise UsageError("improve needs the task that failed, or a change", remedy="task")
            return await shop.improve(args.name, failure, request=context.request)
        if args.patch:
            files = self._patch_files(args, skills)
            return await shop.submit(args.name, {path: data.decode("utf-8", "replace") for path, data in files.items()})
        if args.action == "create" and args.task:
            return await shop.compile(args.name, args.task, context.request)
        raise UsageError(f"{args.action} needs a patch", remedy="or create with a task")

    def _patch_files(self, args: SkillManageArguments, skills: Skillset) -> Mapping[str, bytes]:
        """Return the files of the skill after the patch."""
        files: dict[str, bytes] = {}
        if args.action == "patch":
            files = read_files(skills.registry, skills.registry.version(args.name))
        elif normalize_name(args.name) in skills.registry.skills():
            raise UsageError(f"there is a skill {args.name} already", remedy="the action patch")
        return patch_files(files, args.patch)

    async def _validate(self, name: str, context: Context) -> Envelope:
        from hermes_exec_agent.skills.registry.admission import prove_again

        registry = context.service(Skillset).registry
        version = registry.version(name)
        if not version.is_function:
            raise UsageError(f"{version.name} is a guide, which has no tests", remedy="skill_view shows it")
        if version.number in registry.skill(name).waiting:
            raise Refused(_waiting(version), remedy=f"hermes-exec skill release {version.name}")
        done = await prove_again(registry, version)
        if done.version is None:
            why = "; ".join(done.report.reasons)
            message = f"{name} does not pass any more: {why}"
            return Envelope(ok=False, place=SANDBOX, error=Failure("not_proven", message))
        return _describe_registration(done.version, context, sum(done.report.seconds.values()))

    def _update(self, args: SkillManageArguments, context: Context) -> Envelope:
        """Run an action that needs no sandbox."""
        registry = context.service(Skillset).registry
        skill = registry.skill(args.name)
        match args.action:
            case "history":
                lines = [
                    f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime(each.at))} {each.kind} {each.version}"
                    for each in skill.history
                ]
                return Envelope(ok=True, place=HERE, output="\n".join(lines))
            case "restore":
                if skill.archived:
                    registry.mark("restored", skill.name)
                if args.version:
                    registry.choose(skill.name, args.version)
            case "pin":
                registry.pin(skill.name, args.version or None)
            case _:
                registry.mark("archived", skill.name)
        now = registry.skill(skill.name)
        return Envelope(ok=True, place=HERE, output=f"{now.name} {now.current}: {now.state}")


def patch_files(files: Mapping[str, bytes], patch: str) -> dict[str, bytes]:
    """Return files, by path, after a V4A patch.

    Raises:
        UsageError: it is no such patch, or does not fit.
    """
    from hermes_exec_agent.tools import v4a

    changed = dict(files)
    for operation in v4a.parse(patch):
        before = changed.get(operation.path)
        change = operation.change(None if before is None else before.decode("utf-8", "replace"))
        if change.text is None or change.moved:
            changed.pop(operation.path, None)
        if change.text is not None:
            changed[change.moved or operation.path] = change.text.encode("utf-8", "replace")
    return changed


def write_files(files: Mapping[str, bytes], root: Path, before: Version | None) -> Tree:
    """Write the files of a skill to a new folder; those that were executable ``before`` are again.

    Raises:
        SkillRefused: a path or a size exceeds the limits.
    """
    from hermes_exec_policies.gate.tree import SkillTreeWriter

    executable = {each.path for each in before.files if each.mode & 1} if before is not None else set[str]()
    writer = SkillTreeWriter(root)
    for path, data in files.items():
        writer.add(path, path in executable, data)
    return writer.tree()


def normalize_name(name: str) -> str:
    """Return the name of a skill, from its name or its module's."""
    return name.replace("_", "-").lower()


def _describe_registration(version: Version, context: Context, seconds: float) -> Envelope:
    ready = f"ready for {'skill_run' if version.is_function else 'skill_view'}"
    note = ""
    if version.number in context.service(Skillset).registry.skill(version.name).waiting:
        ready, note = "not ready", f"{_waiting(version)}: hermes-exec skill release {version.name}"
    text = f"registered and {ready}: {describe_version(version)}"
    return Envelope(ok=True, place=SANDBOX, output=text, duration_s=seconds, note=note)


def _waiting(version: Version) -> str:
    """Say that a version waits for a person."""
    return f"{version.name} {version.number} was made from untrusted material, and waits for a person to release it"
