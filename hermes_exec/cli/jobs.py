"""``jobs``, ``logs``, ``attach`` and ``kill``: what ``run --detach`` and ``shell --keep`` started, by whomever."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.arguments import seconds
from hermes_exec.cli.console import note
from hermes_exec.cli.options import Json, On
from hermes_exec.cli.output import show_json, show_table
from hermes_exec.errors import HermesError
from hermes_exec.result import Event, Result
from hermes_exec.terminal.job import Job
from hermes_exec.terminal.job_status import JobStatus
from hermes_exec.terminal.pty_status import PtyStatus

if TYPE_CHECKING:
    from hermes_exec.cli.find_jobs import Guest
    from hermes_exec.terminal.job_log import LogStream

JobName = Annotated[str, typer.Argument(metavar="JOB", help="Its id, or its name.")]


class Stream(StrEnum):
    """Which of a job's outputs."""

    BOTH = "both"
    STDOUT = "stdout"
    STDERR = "stderr"


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add one of the commands to the application."""
    commands: dict[str, Callable[..., int]] = {"jobs": jobs, "logs": logs, "attach": attach, "kill": kill}
    app.command(name, short_help=summary)(commands[name])


def jobs(
    on: On = None,
    *,
    prune: Annotated[bool, typer.Option("--prune", help="Forget those that have ended, and their logs.")] = False,
    json: Json = False,
) -> int:
    """List the jobs of all places, or of one: what was started with run --detach or shell --keep."""
    return interruptible.run(_jobs(on, prune=prune, json=json))


def logs(
    job: JobName,
    on: On = None,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    stream: Annotated[Stream, typer.Option(help="Which of its outputs.")] = Stream.BOTH,
    tail: Annotated[int | None, typer.Option(metavar="BYTES", min=1, help="No more than so much of its end.")] = None,
    json: Json = False,
) -> int:
    """Show what a job wrote, its errors as our errors. Leaving does not disturb it."""
    return interruptible.run(_logs(job, on, follow=follow, stream=stream.value, tail=tail, json=json))


def attach(job: JobName, on: On = None) -> int:
    """Show what a job writes from its beginning on, send it our input, and end with its exit code.

    Its input is there if it was started with: run --detach --stdin. Ctrl-C leaves it to itself.
    One that was started with shell --keep gets this terminal; after Enter, ~d leaves it to itself.
    """
    return interruptible.run(_attach(job, on))


def kill(
    job: Annotated[list[str], typer.Argument(metavar="JOB", help="Its id, or its name.")],
    on: On = None,
    grace: Annotated[str, typer.Option(metavar="TIME", help="Between TERM and KILL.")] = "2s",
    *,
    json: Json = False,
) -> int:
    """End jobs, with all that they started. One that has ended is left as it is."""
    return interruptible.run(_kill(job, on, seconds(grace), json=json))


async def _jobs(on: str | None, *, prune: bool, json: bool) -> int:
    from hermes_exec.cli.find_jobs import guests_with_jobs, record_ends

    async with guests_with_jobs(on) as guests:
        record_ends(guests)
        if prune:
            await _prune(guests, json=json)
            return 0
        found = [(guest.record.target, status) for guest in guests for status in guest.jobs]
        ptys = [(guest.record.target, status) for guest in guests for status in guest.ptys]
    if json:
        shells = [{"kind": "pty", "job": pty.name, "target": target, **asdict(pty)} for target, pty in ptys]
        show_json([_facts(target, status) for target, status in found] + shells)
    elif found or ptys:
        heads = ("JOB", "NAME", "STATE", "STARTED", "TIME", "OUTPUT", "PLACE", "COMMAND")
        rows = [_row(target, status) for target, status in found]
        show_table(heads, rows + [_pty_row(target, status) for target, status in ptys])
    else:
        note("no jobs. Try: hermes-exec run --detach -- COMMAND")
    return 0


async def _prune(guests: "Sequence[Guest]", *, json: bool) -> None:
    from hermes_exec.terminal.job import prune_jobs
    from hermes_exec.terminal.pty import close_pty

    pruned = [id for guest in guests for id in await prune_jobs(guest.link)]
    for link, name in [(guest.link, pty.name) for guest in guests for pty in guest.ptys if pty.ended]:
        await close_pty(link, name)
        pruned.append(name)
    if json:
        show_json({"pruned": pruned})
    else:
        note(f"{len(pruned)} forgotten" if pruned else "none has ended")


def _facts(target: str, status: JobStatus) -> dict[str, Any]:
    from hermes_exec.cli.run_command import facts_of

    return {
        "kind": "job",
        "job": status.id,
        "name": status.name,
        "target": target,
        "state": status.state.value,
        "command": status.command,
        "pid": status.pid,
        "started": status.started,
        "ended": status.ended,
        "duration_s": round(status.duration_s, 3),
        "stdout_bytes": status.stdout_bytes,
        "stderr_bytes": status.stderr_bytes,
        "note": status.note,
        "result": None if status.result is None else facts_of(status.result),
    }


def _row(target: str, status: JobStatus) -> list[str]:
    state = status.state.value if status.result is None else status.result.reason
    return [
        status.id,
        status.name,
        f"{state}: {status.note}" if status.note and status.result is None else state,
        _at(status.started),
        took(status.duration_s),
        f"{status.stdout_bytes + status.stderr_bytes:,} B",
        target,
        " ".join(status.command.split())[:60],
    ]


def _pty_row(target: str, status: PtyStatus) -> list[str]:
    state = "ended" if status.ended else f"{status.views} attached"
    since = took(time.time() - status.started)
    return [status.name, "", state, _at(status.started), since, "", target, status.command[:60]]


def _at(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def took(seconds: float) -> str:
    """A length of time, as short as it can be said."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


async def _logs(word: str, on: str | None, *, follow: bool, stream: str, tail: int | None, json: bool) -> int:
    from hermes_exec.cli.find_jobs import job_called

    async with job_called(word, on) as job:
        events = job.logs(-tail if tail else 0, cast("LogStream", stream), follow=follow)
        if json:
            async with aclosing(events):
                async for event in events:
                    show_json({"stream": event.kind, "text": event.data.decode("utf-8", "replace")})
        else:
            await _show(events)
        if follow:
            await job.status()  # by which its end is recorded
    return 0


async def _show(events: AsyncGenerator[Event]) -> None:
    from hermes_exec.cli.global_flags import flags
    from hermes_exec.cli.stdio import Output

    outputs = {"stdout": Output(1, flags.redactor), "stderr": Output(2, flags.redactor)}
    try:
        async with aclosing(events):
            async for event in events:
                await outputs[event.kind].write(event.data)
        for output in outputs.values():
            await output.flush()
    finally:
        for output in outputs.values():
            output.close()


async def _attach(word: str, on: str | None) -> int:
    from hermes_exec.cli.find_jobs import called
    from hermes_exec.cli.run_command import tell_end

    async with called(word, on) as (link, job):
        if not isinstance(job, Job):
            from hermes_exec.cli.shell import look_at
            from hermes_exec.terminal.pty import attach_pty
            from hermes_exec.terminal.tty import size_of

            rows, cols = size_of(1)
            return await look_at(await attach_pty(link, job.name, rows=rows, cols=cols), kept=True)
        typing = asyncio.create_task(_type(job))
        try:
            await _show(job.logs(follow=True))
            result: Result = await job.wait(max_output=0)
        except asyncio.CancelledError:
            note(f"left; {job.id} goes on. Try: hermes-exec attach {job.id}, or kill")
            raise
        finally:
            typing.cancel()
            await asyncio.gather(typing, return_exceptions=True)
    tell_end(result)
    return result.shell_code


async def _type(job: Job) -> None:
    from hermes_exec.cli.stdio import read

    try:
        while data := await read(0):
            await job.write(data)
        if not os.isatty(0):
            await job.close_stdin()
    except HermesError as error:  # it may wait for what will never come
        note(f"it gets no more input: {error}")


async def _kill(words: list[str], on: str | None, grace_s: float, *, json: bool) -> int:
    from hermes_exec.cli.find_jobs import called
    from hermes_exec.cli.run_command import facts_of
    from hermes_exec.terminal.pty import close_pty

    ended: list[dict[str, Any]] = []
    for word in words:
        async with called(word, on) as (link, job):
            if not isinstance(job, Job):
                await close_pty(link, job.name)
                ended.append({"job": job.name})
                if not json:
                    print(f"{job.name}  ended")
                continue
            result = await job.kill(grace_s, max_output=0)
            ended.append({"job": job.id, **facts_of(result)})
            if not json:
                print(f"{job.id}  {result.reason}")
    if json:
        show_json(ended)
    return 0
