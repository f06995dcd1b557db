"""``jobs``, ``logs``, ``attach`` and ``kill``: the jobs of ``run --detach`` and the shells of ``shell --keep``."""

import asyncio
import codecs
import os
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from hermes_exec._async import cancel_and_wait
from hermes_exec.cli import interruptible
from hermes_exec.cli.arguments import parse_duration, parse_since
from hermes_exec.cli.completion.values import complete_jobs
from hermes_exec.cli.console import note
from hermes_exec.cli.options import Json, On
from hermes_exec.cli.output import print_json_line, show_json, show_table, to_iso
from hermes_exec.errors import HermesError, UsageError
from hermes_exec.result import Event, Result
from hermes_exec.terminal.job import Job
from hermes_exec.terminal.job_status import JobStatus
from hermes_exec.terminal.pty_status import PtyStatus

if TYPE_CHECKING:
    from hermes_exec.backend import Resource
    from hermes_exec.cli.find_jobs import Guest
    from hermes_exec.terminal.job_log import LogStream

JobName = Annotated[
    str, typer.Argument(metavar="JOB", help="The id or the name of a job.", autocompletion=complete_jobs)
]


HEADS = ("JOB", "NAME", "STATE", "STARTED", "TIME", "OUTPUT", "TARGET", "COMMAND")
"""The columns of the list."""
DROPPED = ("OUTPUT", "STARTED", "NAME", "TIME", "TARGET")
"""The columns that a narrow terminal does not show, in this order."""
_COST_AT = HEADS.index("TARGET")
"""The position of the column of costs, which the list has if a cost is known."""
_TAIL_STEP = 64 << 10
"""Bytes that are searched first for the last lines of a log."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The part of a log to print; all of it if each is None."""

    lines: int | None
    size: int | None
    since_s: float | None
    """Seconds before now."""


class OutputChoice(StrEnum):
    """The outputs of a job to print."""

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
    prune: Annotated[bool, typer.Option("--prune", help="Remove ended jobs and their logs.")] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Continue, and print jobs that begin, change or end."),
    ] = False,
    json: Json = False,
) -> int:
    """List the jobs of all targets, or of one, as started by run --detach or shell --keep.

    With --watch, Ctrl-C ends the list; --json then prints one object a line.
    """
    if watch:
        from hermes_exec.cli.watch_jobs import watch_jobs

        if prune:
            raise UsageError("--watch excludes --prune", remedy="leave one of them out")
        return interruptible.run(watch_jobs(on, json=json))
    return interruptible.run(_jobs(on, prune=prune, json=json))


def logs(
    job: JobName,
    on: On = None,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the job ends.")] = False,
    stream: Annotated[OutputChoice, typer.Option(help="Print one of the outputs, or both.")] = OutputChoice.BOTH,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", metavar="N", min=1, help="Print the last N lines.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Print what was written since TIME: 30s, 10m or 2026-01-31T18:00."),
    ] = None,
    size: Annotated[int | None, typer.Option("--bytes", metavar="N", min=1, help="Print the last N bytes.")] = None,
    json: Json = False,
) -> int:
    """Print the output of a job, its errors to standard error. Ctrl-C does not affect the job.

    Of several jobs with one name it is the newest, and a line says so.
    """
    given = {"--tail": tail, "--bytes": size, "--since": since}
    chosen = [option for option, value in given.items() if value is not None]
    if len(chosen) > 1:
        raise UsageError(f"{chosen[0]} excludes {chosen[1]}", remedy="leave one of them out")
    end = LogEnd(lines=tail, size=size, since_s=None if since is None else parse_since(since))
    return interruptible.run(_logs(job, on, end, follow=follow, stream=stream.value, json=json))


def attach(job: JobName, on: On = None, *, json: Json = False) -> int:
    """Print the whole output of a job, send our input to it, and exit with its exit code.

    A job accepts input if it was started with: run --detach --stdin. Ctrl-C detaches. A shell of shell --keep is
    attached to this terminal; after Enter, ~d detaches. --json prints outputs and the result as one object a line.
    """
    return interruptible.run(_attach(job, on, json=json))


def kill(
    job: Annotated[
        list[str], typer.Argument(metavar="JOB", help="The id or the name of a job.", autocompletion=complete_jobs)
    ],
    on: On = None,
    grace: Annotated[str, typer.Option(metavar="TIME", help="Wait so long between TERM and KILL.")] = "2s",
    *,
    json: Json = False,
) -> int:
    """End jobs and all their processes. A job that has ended stays unchanged.

    A name that several running jobs have is refused, and a wrong name ends none.
    """
    return interruptible.run(_kill(job, on, parse_duration(grace), json=json))


async def _jobs(on: str | None, *, prune: bool, json: bool) -> int:
    from hermes_exec.cli.cost import read_prices
    from hermes_exec.cli.find_jobs import guests_with_jobs, record_ends

    async with guests_with_jobs(on) as guests:
        record_ends(guests)
        if prune:
            await _prune(guests, json=json)
            return 0
        found = [(guest, status) for guest in guests for status in guest.jobs]
        ptys = [(guest.record.target, status) for guest in guests for status in guest.ptys]
        prices = await read_prices([guest.backend for guest in guests])
        priced = [(guest.record.target, job, prices.get(guest.backend.target)) for guest, job in found]
    if json:
        shells = [pty_to_json(target, pty) for target, pty in ptys]
        jobs = [{**job_to_json(target, job), "cost": compute_job_cost(price, job)} for target, job, price in priced]
        show_json(jobs + shells)
    elif priced or ptys:
        rows = [(job_row(target, job), format_job_cost(price, job)) for target, job, price in priced]
        rows += [(pty_row(target, pty), "") for target, pty in ptys]
        head: list[tuple[list[str], str]] = [(list(HEADS), "COST")]
        is_priced = any(cost for _, cost in rows)
        heads, *cells = [[*row[:_COST_AT], *([cost] * is_priced), *row[_COST_AT:]] for row, cost in head + rows]
        show_table(heads, cells, drop=("COST", *DROPPED))
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
        note(f"removed: {len(pruned)}" if pruned else "no job has ended")


def job_to_json(target: str, status: JobStatus) -> dict[str, Any]:
    """Return a job for JSON."""
    from hermes_exec.cli.run_command import to_json

    return {
        "kind": "job",
        "job": status.id,
        "name": status.name,
        "target": target,
        "state": status.state.value,
        "command": status.command,
        "pid": status.pid,
        "started": to_iso(status.started),
        "ended": None if status.ended is None else to_iso(status.ended),
        "duration_s": round(status.duration_s, 3),
        "stdout_bytes": status.stdout_bytes,
        "stderr_bytes": status.stderr_bytes,
        "note": status.note,
        "result": None if status.result is None else to_json(status.result),
    }


def compute_job_cost(resource: "Resource | None", status: JobStatus) -> float | None:
    """Return the cost of a job's target while the job ran; None if it is not known."""
    if resource is None or resource.hourly_cost is None:
        return None
    return round(resource.hourly_cost * status.duration_s / 3600, 6)


def format_job_cost(resource: "Resource | None", status: JobStatus) -> str:
    """Format the cost of a job; empty if it is not known."""
    cost = compute_job_cost(resource, status)
    return "" if resource is None or cost is None else f"{'~' * bool(resource.price_source)}${cost:.2g}"


def pty_to_json(target: str, status: PtyStatus) -> dict[str, Any]:
    """Return a kept shell for JSON."""
    return {"kind": "pty", "job": status.name, "target": target, **asdict(status), "started": to_iso(status.started)}


def job_row(target: str, status: JobStatus) -> list[str]:
    """Return the cells of a job."""
    state = status.state.value if status.result is None else status.result.reason
    return [
        status.id,
        status.name,
        f"{state}: {status.note}" if status.note and status.result is None else state,
        format_time(status.started),
        format_elapsed(status.duration_s),
        f"{status.stdout_bytes + status.stderr_bytes:,} B",
        target,
        " ".join(status.command.split())[:60],
    ]


def pty_row(target: str, status: PtyStatus) -> list[str]:
    """Return the cells of a kept shell."""
    state = "ended" if status.ended else f"{status.views} attached"
    since = format_elapsed(time.time() - status.started)
    return [status.name, "", state, format_time(status.started), since, "", target, status.command[:60]]


def format_time(seconds: float) -> str:
    """Format a time as local date and time, for people."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def format_elapsed(seconds: float) -> str:
    """Format a duration as ``1.5 s`` or ``h:mm:ss``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


async def _logs(name: str, on: str | None, end: LogEnd, *, follow: bool, stream: str, json: bool) -> int:
    from hermes_exec.cli.find_jobs import find_job

    async with find_job(name, on, newest=True) as job:
        wanted = cast("LogStream", stream)
        offset = -end.size if end.size else await _find_lines(job, wanted, end.lines) if end.lines else 0
        events = job.logs(offset, wanted, follow=follow, since=end.since_s)
        if json:
            await _print_json_events(events)
        else:
            await _print_events(events)
        if follow:
            await job.status()  # records the end
    return 0


async def _find_lines(job: Job, stream: "LogStream", lines: int) -> int:
    """Return the offset at which the last ``lines`` lines of a log begin."""
    status = await job.status()
    total = {"stdout": status.stdout_bytes, "stderr": status.stderr_bytes}
    end = sum(total.values()) if stream == "both" else total[stream]
    size = _TAIL_STEP
    while True:
        start = max(end - size, 0)
        data = bytearray()
        async with aclosing(job.logs(start, stream)) as events:
            async for event in events:
                data += event.data
        text = bytes(data[: end - start])
        place = len(text) - text.endswith(b"\n")
        for _ in range(lines):
            place = text.rfind(b"\n", 0, place)
            if place < 0:
                break
        if place >= 0 or not start:
            return start + place + 1
        size *= 8


async def _print_json_events(events: AsyncGenerator[Event]) -> None:
    """Print each event as one object a line. A character that two events share belongs to the second one."""
    create = codecs.getincrementaldecoder("utf-8")
    decoders = {"stdout": create("replace"), "stderr": create("replace")}
    async with aclosing(events):
        async for event in events:
            if text := decoders[event.kind].decode(event.data):
                print_json_line({"stream": event.kind, "text": text})
    for kind, decoder in decoders.items():
        if text := decoder.decode(b"", final=True):
            print_json_line({"stream": kind, "text": text})


async def _print_events(events: AsyncGenerator[Event]) -> None:
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


async def _attach(name: str, on: str | None, *, json: bool) -> int:
    from hermes_exec.cli.find_jobs import find_job_or_pty
    from hermes_exec.cli.run_command import print_end, to_json

    async with find_job_or_pty(name, on, newest=True) as (link, job):
        if not isinstance(job, Job):
            from hermes_exec.cli.attach_pty import attach as attach_terminal
            from hermes_exec.terminal.pty import attach_pty
            from hermes_exec.terminal.tty import read_size

            rows, cols = read_size(1)
            return await attach_terminal(await attach_pty(link, job.name, rows=rows, cols=cols), kept=True, json=json)
        feeding = asyncio.create_task(_feed(job))
        try:
            if json:
                await _print_json_events(job.logs(follow=True))
            else:
                await _print_events(job.logs(follow=True))
            result: Result = await job.wait(max_output=0)
        except asyncio.CancelledError:
            note(f"detached; {job.id} keeps running. Try: hermes-exec attach {job.id}, or kill")
            raise
        finally:
            await cancel_and_wait([feeding])
    if json:
        print_json_line({"job": job.id, "detached": False, "result": to_json(result)})
    else:
        print_end(result)
    return result.shell_code


async def _feed(job: Job) -> None:
    from hermes_exec.cli.stdio import read

    try:
        while data := await read(0):
            await job.write(data)
        if not os.isatty(0):
            await job.close_stdin()
    except HermesError as error:  # the job may be waiting for input
        note(f"the job receives no more input: {error}")


async def _kill(names: list[str], on: str | None, grace_s: float, *, json: bool) -> int:
    from hermes_exec.cli.find_jobs import find_job_or_pty
    from hermes_exec.cli.run_command import to_json
    from hermes_exec.terminal.pty import close_pty

    ended: list[dict[str, Any]] = []
    async with AsyncExitStack() as stack:
        # All of them, before the first one is ended: a wrong name ends none.
        found = [await stack.enter_async_context(find_job_or_pty(name, on)) for name in dict.fromkeys(names)]
        for link, job in found:
            if not isinstance(job, Job):
                await close_pty(link, job.name)
                ended.append({"job": job.name})
                if not json:
                    print(f"{job.name}  ended")
                continue
            result = await job.kill(grace_s, max_output=0)
            ended.append({"job": job.id, **to_json(result)})
            if not json:
                print(f"{job.id}  {result.reason}")
    if json:
        show_json(ended)
    return 0
