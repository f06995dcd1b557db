"""One command in a place, its streams and exit code as if it ran here: the work of ``run``."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from hermes_exec.cli import interruptible
from hermes_exec.cli.arguments import limits, seconds, variables
from hermes_exec.cli.console import note
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.open_target import opened, planned, time_limit
from hermes_exec.cli.stdio import Output, feed
from hermes_exec.errors import HermesError, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hermes_exec.cli.fast_args import Spoken
    from hermes_exec.result import Result
    from hermes_exec.terminal.requests import StreamOptions
    from hermes_exec.terminal.stream import Stream
    from hermes_exec.terminal.terminal import Terminal


def perform(spoken: Spoken) -> int:
    """Do what was asked for and give the exit code.

    Raises:
        HermesError: the words make no sense, or the place failed us.
    """
    _refuse_what_is_lost(spoken)
    work = _detached if spoken.detach else _on_a_terminal if spoken.pty else _kept if spoken.json else _live
    return interruptible.run(work(spoken))


def _refuse_what_is_lost(spoken: Spoken) -> None:
    """An option that would be left out in silence is a mistake."""
    way = "--detach" if spoken.detach else "--pty" if spoken.pty else ""
    said = {
        "--pty": spoken.pty and spoken.detach,
        "--merge": spoken.merge,
        "--grace": spoken.grace is not None,
        "--json": spoken.json and spoken.pty,
        "--limit": bool(spoken.limits) and spoken.pty,
        "--timeout": spoken.timeout is not None and spoken.pty,
        "--no-stdin": spoken.stdin is False and spoken.pty,
    }
    lost = [option for option, is_said in said.items() if is_said] if way else ["--name"] * bool(spoken.name)
    if lost:
        why = f"means nothing with {way}" if way else "is for a job"
        raise UsageError(f"{', '.join(lost)} {why}", remedy="leave it out" if way else "run --detach --name …")


def _command(spoken: Spoken) -> str | list[str]:
    is_text = len(spoken.command) == 1 if spoken.shell is None else spoken.shell
    return " ".join(spoken.command) if is_text else spoken.command


def _options(spoken: Spoken) -> StreamOptions:
    options: StreamOptions = {
        "env": variables(spoken.env),
        "cwd": spoken.cwd,
        "merge_stderr": spoken.merge,
        "interactive": not os.isatty(0) if spoken.stdin is None else spoken.stdin,
    }
    if spoken.timeout is not None:
        options["timeout"] = time_limit(seconds(spoken.timeout))
    if spoken.grace is not None:
        options["grace_s"] = seconds(spoken.grace)
    if spoken.limits:
        options["limits"] = limits(spoken.limits)
    return options


@asynccontextmanager
async def _started(terminal: Terminal, spoken: Spoken) -> AsyncGenerator[Stream]:
    """The command, running and fed from our input; ended on the way out."""
    options = _options(spoken)
    async with terminal.stream(_command(spoken), **options) as stream:
        feeding = asyncio.create_task(feed(stream)) if options.get("interactive") else None
        try:
            yield stream
        finally:
            if feeding is not None:
                feeding.cancel()
                # A command that ends before its input does is no fault; a fault of ours is.
                for error in await asyncio.gather(feeding, return_exceptions=True):
                    if not isinstance(error, asyncio.CancelledError | HermesError | OSError | None):
                        raise error


async def _live(spoken: Spoken) -> int:
    async with opened(planned(spoken.on)) as terminal:
        redactor = flags.redactor if spoken.redact else None
        outputs = {"stdout": Output(1, redactor), "stderr": Output(2, redactor)}
        try:
            async with _started(terminal, spoken) as stream:
                async for event in stream:
                    if event.result is None:
                        await outputs[event.kind].write(event.data)
                result = await stream.result()
            for output in outputs.values():
                await output.flush()
        finally:
            for output in outputs.values():
                output.close()
    tell_end(result)
    return result.shell_code


def tell_end(result: Result) -> None:
    """Say what the exit code alone does not: why there was no program, which limit ended it."""
    if result.note:
        note(result.note)
    if result.timed_out or result.limit:
        note(result.reason)


async def _kept(spoken: Spoken) -> int:
    from hermes_exec.cli.output import show_json
    from hermes_exec.terminal.output import Output as Kept
    from hermes_exec.terminal.output import Spools

    plan = planned(spoken.on)
    spools = Spools()
    kept = {kind: Kept(plan.max_output, spools) for kind in ("stdout", "stderr")}
    try:
        async with opened(plan) as terminal, _started(terminal, spoken) as stream:
            async for event in stream:
                if event.result is None:
                    kept[event.kind].feed(event.data)
            result = await stream.result()
            show_json({"target": terminal.target, **facts_of(result)} | _outputs(kept))
    finally:
        spools.close()
    return result.shell_code


def facts_of(result: Result) -> dict[str, Any]:
    """How a command ended, for programs."""
    return {
        "exit_code": result.exit_code,
        "signal": result.signal,
        "timed_out": result.timed_out,
        "limit": result.limit,
        "duration_s": round(result.duration_s, 6),
        "note": result.note,
    }


def _outputs(kept: dict[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for kind, output in kept.items():
        data, lost = output.value()
        try:
            facts[kind] = data.decode()
        except UnicodeDecodeError:
            from base64 import b64encode

            facts[kind] = data.decode("utf-8", "replace")
            facts[f"{kind}_base64"] = b64encode(data).decode()
        if lost is not None:
            facts[f"{kind}_omitted"] = lost.omitted
    return facts


async def _detached(spoken: Spoken) -> int:
    async with opened(planned(spoken.on)) as terminal:
        job = await terminal.start(
            _command(spoken),
            name=spoken.name,
            env=variables(spoken.env),
            cwd=spoken.cwd,
            stdin=bool(spoken.stdin),
            cap_s=None if spoken.timeout is None else time_limit(seconds(spoken.timeout)),
            limits=limits(spoken.limits),
        )
        if spoken.json:
            from hermes_exec.cli.output import show_json

            show_json({"job": job.id, "target": terminal.target, "name": spoken.name})
        else:
            print(job.id)
    return 0


async def _on_a_terminal(spoken: Spoken) -> int:
    from hermes_exec.cli.shell import lend_terminal

    command = _command(spoken)
    words = ["sh", "-c", command] if isinstance(command, str) else command
    async with opened(planned(spoken.on)) as terminal:
        return await lend_terminal(terminal, words, cwd=spoken.cwd, env=variables(spoken.env))
