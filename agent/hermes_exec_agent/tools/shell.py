"""Commands and background processes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from hermes_exec._async import shield_to_completion
from hermes_exec.errors import Unsupported, UsageError
from hermes_exec_agent.quoting import quote
from hermes_exec_agent.tools.base import BaseTool, ToolArguments
from hermes_exec_agent.tools.envelope import Envelope, failure_envelope
from hermes_exec_agent.tools.tool import ReadDenied, check_approval
from hermes_exec_agent.tools.workspace import KEPT
from hermes_exec_agent.tools.workspace_bounds import command_stays

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from hermes_exec.terminal.job import Job
    from hermes_exec.terminal.job_status import JobStatus
    from hermes_exec_agent.tools.tool import Context

_LONGEST_S = 600
_LOOKS = frozenset({"poll", "log", "wait"})


class TerminalArguments(ToolArguments):
    """Run shell text. Folder, variables and functions persist between calls."""

    command: str = Field(min_length=1)
    timeout: int = Field(180, ge=1, le=_LONGEST_S, description="Seconds")
    workdir: str = Field("", description="Run in this folder; then nothing persists")
    background: bool = Field(
        False, description="Return at once with a session_id for the tool process; ends with the conversation"
    )
    keep: bool = Field(
        False, description="With background: start a job that outlives the conversation, if a person approves it"
    )


class TerminalTool(BaseTool[TerminalArguments]):
    """Runs commands in the conversation's shell or in the background."""

    name = "terminal"
    position = 10
    arguments_type = TerminalArguments

    def needs_approval(self, args: TerminalArguments) -> bool:
        """Whether the tool's mode decides; a job that outlives the conversation is always asked for, by `run`."""
        return not args.keep

    async def stays_inside(self, args: TerminalArguments, context: Context) -> bool:
        """Whether the command certainly stays in the workspace."""
        return await super().stays_inside(args, context) or await command_stays(args.command, args.workdir, context)

    def find_command(self, args: TerminalArguments) -> str:
        """Return the command."""
        return args.command

    def summary(self, args: TerminalArguments) -> str:
        """Return the command."""
        where = f" (in {args.workdir})" if args.workdir else ""
        how = " in the background" if args.background else ""
        return f"{args.command}{where}{how}"

    async def run(self, args: TerminalArguments, context: Context) -> Envelope:
        """Run the command until it ends, or start it."""
        workspace = context.workspace
        if args.keep and not args.background:
            raise UsageError("keep applies to background commands alone", remedy="background true, or leave keep out")
        if args.keep and not context.terminal.capabilities.reconnect:
            raise Unsupported(
                f"{context.place} ends with this program, so no job outlives the conversation", remedy="leave keep out"
            )
        if args.keep:
            what = f"start a job that outlives this conversation: {self.summary(args)}"
            if (
                no := await check_approval(self.name, what, context, scope=what, always=True, command=args.command)
            ) is not None:
                return failure_envelope(context.place, no)
        await context.begin_command(await workspace.path(args.workdir) if args.workdir else "")
        if not args.background:
            return await workspace.run(args.command, timeout=args.timeout, workdir=args.workdir)
        folder = await workspace.path(args.workdir or ".")
        start = context.terminal.start(args.command, cwd=folder, env=workspace.env, stdin=True, keep=args.keep)
        starting = asyncio.ensure_future(start)
        try:
            job = await asyncio.shield(starting)
        except asyncio.CancelledError:
            await shield_to_completion(_kill_started(starting), limit_s=None)  # the caller would never learn its id
            raise
        (workspace.lasting if args.keep else workspace.background)[job.id] = args.command
        return Envelope(
            ok=True, place=context.place, cwd=folder, session_id=job.id, output="started", note="see the tool process"
        )


async def _kill_started(starting: Awaitable[Job]) -> None:
    job = await starting
    await job.kill(max_output=0)
    await job.prune()  # a remembered ended job would keep the target


class ProcessArguments(ToolArguments):
    """Manage background processes. poll: new output; log: lines of all output; submit: write data and a newline."""

    action: Literal["list", "poll", "log", "wait", "kill", "write", "submit", "close"]
    session_id: str = Field("", description="All but list")
    data: str = Field("", description="For write, submit")
    timeout: int = Field(60, ge=1, le=_LONGEST_S, description="For wait, seconds")
    offset: int = Field(0, ge=0, description="For log, lines to skip")
    limit: int = Field(200, ge=1, le=2000)


class ProcessTool(BaseTool[ProcessArguments]):
    """Manages background processes."""

    name = "process"
    position = 20
    arguments_type = ProcessArguments

    def __init__(self) -> None:
        super().__init__()
        self._read: dict[str, int] = {}
        """Bytes of each one's output that were polled."""

    def needs_approval(self, args: ProcessArguments) -> bool:
        """Whether it changes a skill."""
        return args.action in {"kill", "write", "submit", "close"}

    def summary(self, args: ProcessArguments) -> str:
        """Return the action and its process."""
        return f"{args.action} {args.session_id} {args.data}".rstrip()

    async def run(self, args: ProcessArguments, context: Context) -> Envelope:
        """Run the action."""
        if args.action == "list":
            own = context.workspace.jobs
            jobs = [format_process(each, ours=each.id in own) for each in await context.terminal.jobs()]
            lines = "\n".join([*context.delegated.list_all(), *jobs])
            return Envelope(ok=True, place=context.place, output=lines or "none")
        if not args.session_id:
            raise UsageError(f"{args.action} needs a session_id", remedy="action list gives them")
        if context.delegated.has(args.session_id):
            return await self._manage_task(args, context)
        job = await context.terminal.job(args.session_id)
        if args.action not in _LOOKS:
            await context.begin_command()
        if args.action in _LOOKS and job.id not in context.workspace.jobs:
            what = f"read the output of {job.id}, which this conversation did not start"
            stays = not context.workspace.is_machine
            if (no := await check_approval(self.name, what, context, scope=what, stays=stays)) is not None:
                raise ReadDenied(no.message)
        match args.action:
            case "poll":
                return await self._read_news(job, context)
            case "log":
                return await self._read_log(job, args, context)
            case "wait":
                try:
                    await job.wait(args.timeout, max_output=0)
                except TimeoutError:
                    return await self._read_news(job, context)
            case "kill":
                await job.kill(max_output=0)
            case "close":
                await job.close_stdin()
            case _:
                await job.write(args.data + ("\n" if args.action == "submit" else ""))
        return await self._read_news(job, context)

    async def _manage_task(self, args: ProcessArguments, context: Context) -> Envelope:
        """Run the action for a delegated task, which is not a process."""
        if args.action not in _LOOKS and args.action != "kill":
            raise UsageError(f"{args.session_id} is a delegated task and takes no input", remedy="poll, wait or kill")
        if args.action == "kill":
            await context.delegated.end(args.session_id)
        return await context.delegated.poll(args.session_id, args.timeout if args.action == "wait" else 0)

    async def _read_news(self, job: Job, context: Context) -> Envelope:
        status = await job.status()
        data = bytearray()
        async for event in job.logs(self._read.get(job.id, 0)):
            data += event.data
            if len(data) >= KEPT:
                break
        self._read[job.id] = self._read.get(job.id, 0) + len(data)
        return await _create_envelope(status, data.decode("utf-8", "replace"), context)

    async def _read_log(self, job: Job, args: ProcessArguments, context: Context) -> Envelope:
        status = await job.status()
        data = bytearray()
        async for event in job.logs():
            data += event.data
            if data.count(b"\n") >= args.offset + args.limit or len(data) >= 16 * KEPT:
                break
        lines = data.decode("utf-8", "replace").splitlines()[args.offset : args.offset + args.limit]
        return await _create_envelope(status, "\n".join(lines), context)


async def _create_envelope(status: JobStatus, text: str, context: Context) -> Envelope:
    shown, reference = await context.workspace.shorten(text)
    ended = status.result
    return Envelope(
        ok=ended is None or ended.ok, place=context.place, output=shown, output_ref=reference,
        truncated=bool(reference), session_id=status.id, exit_code=ended.exit_code if ended else None,
        note=" ".join(filter(None, (str(status.state), ended.reason if ended else "", status.note))),
        duration_s=status.duration_s,
    )  # fmt: skip


def format_process(status: JobStatus, *, ours: bool) -> str:
    """Format a process for a list; the command of one that another conversation may have started is left out."""
    how = f"{status.state}, {status.result.reason}" if status.result else str(status.state)
    command = quote(status.command, 100) if ours else "(not started by this conversation)"
    return f"{status.id} {how} {status.duration_s:.0f} s: {command}"
