"""One command in a place, its streams and exit code as if it ran here: the work of ``run``."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec.cli import loop
from hermes_exec.cli.flags import flags
from hermes_exec.cli.pipes import Output, feed
from hermes_exec.cli.places import opened, tell_warnings, time_limit
from hermes_exec.cli.say import note
from hermes_exec.cli.words import seconds, variables
from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from hermes_exec.cli.quick import Spoken
    from hermes_exec.result import Result
    from hermes_exec.stream import Stream
    from hermes_exec.terminal import Terminal


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one ``run`` was asked for."""

    command: str | list[str]
    """Shell text, or words."""
    on: str | None
    timeout_s: float | None
    cwd: str | None
    env: dict[str, str]
    stdin: bool
    merge: bool
    grace_s: float | None
    redact: bool


def perform(spoken: Spoken) -> int:
    """Do what was asked for and give the exit code.

    Raises:
        HermesError: the words make no sense, or the place failed us.
    """
    tell_warnings()
    is_text = len(spoken.command) == 1 if spoken.shell is None else spoken.shell
    wanted = Wanted(
        command=" ".join(spoken.command) if is_text else spoken.command,
        on=spoken.on,
        timeout_s=None if spoken.timeout is None else time_limit(seconds(spoken.timeout)),
        cwd=spoken.cwd,
        env=variables(spoken.env),
        stdin=not os.isatty(0) if spoken.stdin is None else spoken.stdin,
        merge=spoken.merge,
        grace_s=None if spoken.grace is None else seconds(spoken.grace),
        redact=spoken.redact,
    )
    return loop.run(_kept(wanted) if spoken.json else _live(wanted))


async def _live(wanted: Wanted) -> int:
    async with opened(wanted.on) as terminal:
        redactor = flags.redactor if wanted.redact else None
        outputs = {"stdout": Output(1, redactor), "stderr": Output(2, redactor)}
        try:
            async with _stream(terminal, wanted) as stream:
                feeding = asyncio.create_task(feed(stream)) if wanted.stdin else None
                try:
                    async for event in stream:
                        if event.result is None:
                            await outputs[event.kind].write(event.data)
                finally:
                    _leave(feeding)
                result = await stream.result()
            for output in outputs.values():
                await output.flush()
        finally:
            for output in outputs.values():
                output.close()
    _tell(result)
    return result.shell_code


def _stream(terminal: Terminal, wanted: Wanted) -> Stream:
    return terminal.stream(
        wanted.command,
        timeout=wanted.timeout_s,
        env=wanted.env,
        cwd=wanted.cwd,
        merge_stderr=wanted.merge,
        grace_s=wanted.grace_s,
        interactive=wanted.stdin,
    )


def _leave(feeding: asyncio.Task[None] | None) -> None:
    if feeding is not None and not feeding.cancel():
        error = feeding.exception()
        if error is not None and not isinstance(error, HermesError | OSError):
            raise error


def _tell(result: Result) -> None:
    if result.note:
        note(result.note)
    if result.timed_out or result.limit:
        note(result.reason)


async def _kept(wanted: Wanted) -> int:
    from hermes_exec.cli.show import show_json
    from hermes_exec.collect import DEFAULT_MAX_OUTPUT, Output as Kept, Spools

    spools = Spools()
    kept = {kind: Kept(DEFAULT_MAX_OUTPUT, spools) for kind in ("stdout", "stderr")}
    async with opened(wanted.on) as terminal, _stream(terminal, wanted) as stream:
        feeding = asyncio.create_task(feed(stream)) if wanted.stdin else None
        try:
            async for event in stream:
                if event.result is None:
                    kept[event.kind].feed(event.data)
        finally:
            _leave(feeding)
        result = await stream.result()
    show_json(_facts(result, terminal.target, {kind: output.value() for kind, output in kept.items()}))
    spools.close()
    return result.shell_code


def _facts(result: Result, target: str, outputs: dict[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "target": target,
        "exit_code": result.exit_code,
        "signal": result.signal,
        "timed_out": result.timed_out,
        "limit": result.limit,
        "duration_s": round(result.duration_s, 6),
        "note": result.note,
    }
    for kind, (data, lost) in outputs.items():
        try:
            facts[kind] = data.decode()
        except UnicodeDecodeError:
            from base64 import b64encode

            facts[kind] = data.decode("utf-8", "replace")
            facts[f"{kind}_base64"] = b64encode(data).decode()
        if lost is not None:
            facts[f"{kind}_omitted"] = lost.omitted
    return facts
