"""The work of ``run``: one command in a target, with the streams and the exit code of a local command."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from hermes_exec.cli import interruptible
from hermes_exec.cli.arguments import parse_duration, parse_limits, parse_variables
from hermes_exec.cli.console import note
from hermes_exec.cli.fast_args import parse_run
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.open_target import open_planned, plan_personal, refuse_to_leave, to_time_limit
from hermes_exec.cli.stdio import Output, feed
from hermes_exec.config.type_names import GROUP
from hermes_exec.errors import HermesError, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from hermes_exec.cli.fast_args import RunArguments
    from hermes_exec.config.plan import Plan
    from hermes_exec.result import Result
    from hermes_exec.terminal.requests import StreamOptions
    from hermes_exec.terminal.stream import Stream
    from hermes_exec.terminal.terminal import Terminal


def prepare_run(argv: Sequence[str]) -> Callable[[], int] | None:
    """Return a function that runs a plain ``run``; None for any other command line."""
    arguments = parse_run(argv)
    return None if arguments is None else lambda: run_in_targets(arguments)


def run_in_targets(arguments: RunArguments) -> int:
    """Run the command in one target or in several, and return the exit code.

    Raises:
        HermesError: the arguments are wrong, or the one target failed.
    """
    _refuse_ignored_options(arguments)
    if len(arguments.on) > 1 or (arguments.on and arguments.on[0].startswith(f"{GROUP}:")):
        from hermes_exec.cli.run_many import run_many

        return run_many(arguments)
    if arguments.max_parallel is not None or arguments.fail_fast:
        raise UsageError("--max-parallel and --fail-fast are for several targets", remedy="--on A --on B")
    return run_command(arguments)


def run_command(arguments: RunArguments) -> int:
    """Run the command in one target, and return the exit code.

    Raises:
        HermesError: the arguments are wrong, or the target failed.
    """
    if arguments.detach:
        work = _start_job
    elif arguments.pty:
        work = _run_on_pty
    else:
        work = _run_to_json if arguments.json else _run_live
    return interruptible.run(work(arguments))


def _refuse_ignored_options(arguments: RunArguments) -> None:
    """Refuse options that have no effect with ``--pty``, ``--detach`` or without them."""
    mode = "--detach" if arguments.detach else "--pty" if arguments.pty else ""
    ignored = {
        "--pty": arguments.pty and arguments.detach,
        "--merge": arguments.merge,
        "--grace": arguments.grace is not None,
        "--json": arguments.json and arguments.pty,
        "--limit": bool(arguments.limits) and arguments.pty,
        "--timeout": arguments.timeout is not None and arguments.pty,
        "--no-stdin": arguments.stdin is False and arguments.pty,
    }
    found = [option for option, is_set in ignored.items() if is_set] if mode else ["--name"] * bool(arguments.name)
    if found:
        why = f"has no effect with {mode}" if mode else "is for a job"
        raise UsageError(f"{', '.join(found)} {why}", remedy="leave it out" if mode else "run --detach --name …")


def _get_command(arguments: RunArguments) -> str | list[str]:
    is_text = len(arguments.command) == 1 if arguments.shell is None else arguments.shell
    return " ".join(arguments.command) if is_text else arguments.command


def _build_options(arguments: RunArguments) -> StreamOptions:
    options: StreamOptions = {
        "env": parse_variables(arguments.env),
        "cwd": arguments.cwd,
        "merge_stderr": arguments.merge,
        "interactive": not os.isatty(0) if arguments.stdin is None else arguments.stdin,
    }
    if arguments.timeout is not None:
        options["timeout"] = to_time_limit(parse_duration(arguments.timeout))
    if arguments.grace is not None:
        options["grace_s"] = parse_duration(arguments.grace)
    if arguments.limits:
        options["limits"] = parse_limits(arguments.limits)
    return options


@asynccontextmanager
async def start_stream(terminal: Terminal, arguments: RunArguments) -> AsyncGenerator[Stream]:
    """Start the command, send our input to it, and end it on exit."""
    options = _build_options(arguments)
    async with terminal.stream(_get_command(arguments), **options) as stream:
        feeding = asyncio.create_task(feed(stream)) if options.get("interactive") else None
        try:
            yield stream
        finally:
            if feeding is not None:
                feeding.cancel()
                # The command may end before its input does; any other error is raised.
                for error in await asyncio.gather(feeding, return_exceptions=True):
                    if not isinstance(error, asyncio.CancelledError | HermesError | OSError | None):
                        raise error


async def _run_live(arguments: RunArguments) -> int:
    async with open_planned(plan_personal(arguments.target)) as terminal:
        redactor = flags.redactor if arguments.redact else None
        outputs = {"stdout": Output(1, redactor), "stderr": Output(2, redactor)}
        try:
            async with start_stream(terminal, arguments) as stream:
                async for event in stream:
                    if event.result is None:
                        await outputs[event.kind].write(event.data)
                result = await stream.result()
            for output in outputs.values():
                await output.flush()
        finally:
            for output in outputs.values():
                output.close()
    print_end(result)
    return result.shell_code


def print_end(result: Result) -> None:
    """Print facts that the exit code does not show: the note of the result, or the limit that ended the command."""
    if result.note:
        note(result.note)
    if result.timed_out or result.limit:
        note(result.reason)


async def _run_to_json(arguments: RunArguments) -> int:
    from hermes_exec.cli.output import show_json

    facts, code = await capture_command(plan_personal(arguments.target), arguments)
    show_json(facts)
    return code


async def capture_command(plan: Plan, arguments: RunArguments) -> tuple[dict[str, Any], int]:
    """Run the command to its end, and return its result as JSON values, and the exit code.

    Raises:
        HermesError: the target failed.
    """
    from hermes_exec.terminal.output import OutputBuffer as Capture
    from hermes_exec.terminal.output import SpoolFolder

    spools = SpoolFolder()
    captures = {kind: Capture(plan.max_output, spools) for kind in ("stdout", "stderr")}
    try:
        async with open_planned(plan) as terminal, start_stream(terminal, arguments) as stream:
            async for event in stream:
                if event.result is None:
                    captures[event.kind].feed(event.data)
            result = await stream.result()
            return {"target": terminal.target, **to_json(result)} | _outputs_to_json(captures), result.shell_code
    finally:
        spools.close()


def to_json(result: Result) -> dict[str, Any]:
    """Return the end of a command as JSON values."""
    return {
        "exit_code": result.exit_code,
        "signal": result.signal,
        "timed_out": result.timed_out,
        "limit": result.limit,
        "duration_s": round(result.duration_s, 6),
        "note": result.note,
    }


def _outputs_to_json(captures: dict[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for kind, output in captures.items():
        data, lost = output.finish()
        try:
            facts[kind] = data.decode()
        except UnicodeDecodeError:
            from base64 import b64encode

            facts[kind] = data.decode("utf-8", "replace")
            facts[f"{kind}_base64"] = b64encode(data).decode()
        if lost is not None:
            facts[f"{kind}_omitted"] = lost.omitted
    return facts


async def _start_job(arguments: RunArguments) -> int:
    facts = await start_job(plan_personal(arguments.target), arguments)
    if arguments.json:
        from hermes_exec.cli.output import show_json

        show_json(facts)
    else:
        print(facts["job"])
    return 0


async def start_job(plan: Plan, arguments: RunArguments) -> dict[str, Any]:
    """Start the command as a job, and return its id and its target as JSON values.

    Raises:
        HermesError: the target failed.
    """
    async with open_planned(plan) as terminal:
        refuse_to_leave(terminal, "a job")
        job = await terminal.start(
            _get_command(arguments),
            name=arguments.name,
            env=parse_variables(arguments.env),
            cwd=arguments.cwd,
            stdin=bool(arguments.stdin),
            cap_s=None if arguments.timeout is None else to_time_limit(parse_duration(arguments.timeout)),
            limits=parse_limits(arguments.limits),
        )
        return {"job": job.id, "target": terminal.target, "name": arguments.name}


async def _run_on_pty(arguments: RunArguments) -> int:
    from hermes_exec.cli.attach_pty import run_attached

    command = _get_command(arguments)
    argv = ["sh", "-c", command] if isinstance(command, str) else command
    async with open_planned(plan_personal(arguments.target)) as terminal:
        return await run_attached(terminal, argv, cwd=arguments.cwd, env=parse_variables(arguments.env))
