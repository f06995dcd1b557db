"""The tool that runs one script of a skill: in a sandbox of its own, or, if a person granted it, in the target."""

from __future__ import annotations

import posixpath
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import Field

from hermes_exec._async import shield_to_completion
from hermes_exec.errors import UsageError
from hermes_exec_agent.quoting import quote_name
from hermes_exec_agent.tools.base import BaseTool, ToolArguments
from hermes_exec_agent.tools.delivery import deliver
from hermes_exec_agent.tools.envelope import Envelope, Failure
from hermes_exec_agent.tools.provenance import list_origins
from hermes_exec_agent.tools.reader import FileReader
from hermes_exec_agent.tools.skillset import SANDBOX, Skillset
from hermes_exec_agent.tools.tool import check_approval

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.skills.registry.record import Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_agent.skills.run.scripts import ScriptOutcome
    from hermes_exec_agent.tools.tool import Context

_UNPROVEN = "unproven script"
_LIMIT_S = 900


class SkillScriptArguments(ToolArguments):
    """Run a skill's script in a sandbox without network; its working folder has copies of files. For guides."""

    name: str = Field(min_length=1)
    script: str = Field(min_length=1, description="Such as scripts/x.py")
    args: list[str] = Field([])
    files: list[str] = Field([], description="Files of the target to copy there")
    stdin: str = ""
    timeout: int = Field(300, ge=1, le=_LIMIT_S)


class SkillScript(BaseTool[SkillScriptArguments]):
    """Runs scripts of skills."""

    name = "skill_script"
    position = 115
    arguments_type = SkillScriptArguments

    def summary(self, args: SkillScriptArguments) -> str:
        """Return the command."""
        return shlex.join([args.name, args.script, *args.args])

    async def stays_inside(self, args: SkillScriptArguments, context: Context) -> bool:  # noqa: ARG002  its sandbox decides
        """Whether it acts in the workspace alone: a sandbox contains it, or `run` asks a person."""
        return True

    async def run(self, args: SkillScriptArguments, context: Context) -> Envelope:
        """Run the script, deliver its files, and return its output, which has the skill's origin."""
        from hermes_exec_agent.skills.run.scripts import resolve_script

        registry = context.service(Skillset).registry
        skill, version, grants = resolve_script(registry, args.name, args.script)
        if grants.unsandboxed:
            envelope = await self._run_in_target(registry, version, args, context)
        else:
            envelope = await self._run_in_sandbox(version, args, context)
        return replace(envelope, origins=list_origins(version, skill))

    async def _run_in_sandbox(self, version: Version, args: SkillScriptArguments, context: Context) -> Envelope:
        from hermes_exec_agent.skills.registry.content import private_folder
        from hermes_exec_agent.skills.run.scripts import run_script

        skills = context.service(Skillset)
        with private_folder() as folder:
            (inputs := folder / "given").mkdir()
            given = [await _fetch(self.name, path, inputs, context) for path in args.files]
            outcome = await run_script(
                skills.registry, version.name, args.script, args.args, given=given, stdin=args.stdin.encode(),
                files=folder / "files", number=version.number, time_limit_s=args.timeout,
            )  # fmt: skip
            kept = deliver(folder / "files", outcome.files, skills.data)
        return await _to_envelope(outcome, kept, context)

    async def _run_in_target(
        self, registry: Registry, version: Version, args: SkillScriptArguments, context: Context
    ) -> Envelope:
        """Copy the skill to the target, and run the script there as a command; each run asks."""
        from hermes_exec_agent.skills.registry.content import private_folder
        from hermes_exec_agent.skills.run import preconditions
        from hermes_exec_agent.skills.run.scripts import find_program

        command = self.summary(args)
        asked = f"run {command} without a sandbox in {context.place}"
        if (no := await check_approval(self.name, asked, context, scope=asked, always=True)) is not None:
            return Envelope(ok=False, place=context.place, error=no)
        await context.begin_command()
        with private_folder() as folder:
            tree = folder / version.name
            preconditions.copy_files(registry, version, tree)
            program = find_program(tree, args.script)
            made = await context.terminal.run(["mktemp", "-d"], timeout=60, check=True)
            above = made.stdout_text.strip()
            try:
                await context.terminal.files.upload(tree, posixpath.join(above, version.name))
                await context.terminal.files.write(posixpath.join(above, "stdin"), args.stdin.encode())
                words = [program, posixpath.join(above, version.name, args.script), *args.args]
                line = f"{shlex.join(words)} < {shlex.quote(posixpath.join(above, 'stdin'))}"
                return await context.workspace.run(line, timeout=args.timeout)
            finally:
                await shield_to_completion(context.terminal.run(["rm", "-rf", above], timeout=60))


async def _fetch(tool: str, path: str, folder: Path, context: Context) -> Path:
    """Copy a file of the target to this machine, for the sandbox.

    Raises:
        ReadDenied: the model may not see it.
        UsageError: two files have one name.
    """
    source = await context.workspace.path(path)
    target = folder / posixpath.basename(source)
    if target.exists():
        raise UsageError(f"two files are named {target.name}", remedy="copy one of them to another name first")
    target.write_bytes(await FileReader(tool, context).read(source))
    return target


async def _to_envelope(outcome: ScriptOutcome, kept: list[str], context: Context) -> Envelope:
    label = f"{outcome.name} {outcome.version} {outcome.script}"
    record = {"name": outcome.name, "version": outcome.version, "outcome": outcome.reason}
    context.record("skill", record)
    if outcome.denied:
        context.tell(outcome.denied)
        message = f"{label}: refused for security. It is kept back now"
        return Envelope(ok=False, place=SANDBOX, duration_s=outcome.seconds, error=Failure("refused", message))
    text = b"\n".join(filter(None, (outcome.stdout, outcome.stderr))).decode("utf-8", "replace")
    shown, reference = await context.workspace.shorten(text)
    saved = f"; packages: {', '.join(outcome.packages)}" if outcome.packages else ""
    saved += f"; {outcome.hint}" if outcome.hint else ""
    saved += f"; files: {', '.join(map(quote_name, kept))}" if kept else ""
    error = None if outcome.exit_code is not None else Failure("limit", f"{label}: {outcome.reason}")
    return Envelope(
        ok=outcome.ok, place=SANDBOX, output=shown, output_ref=reference, truncated=bool(reference),
        exit_code=outcome.exit_code, duration_s=outcome.seconds, note=f"{_UNPROVEN}{saved}", error=error,
    )  # fmt: skip
