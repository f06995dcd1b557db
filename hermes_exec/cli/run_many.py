"""``run`` in several targets at once: prefixed output, a table of all ends, and the highest exit code."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec._async import cancel_and_wait
from hermes_exec.cli import interruptible
from hermes_exec.cli.console import OURS, describe_error, note, say
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.open_target import open_planned, plan_personal, read_settings
from hermes_exec.cli.output import align_columns, print_json_line
from hermes_exec.cli.run_command import capture_command, start_job, start_stream
from hermes_exec.cli.stdio import Output
from hermes_exec.config.groups import expand_groups
from hermes_exec.errors import HermesError, UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from hermes_exec.cli.fast_args import RunArguments
    from hermes_exec.config.plan import Plan
    from hermes_exec.observe.redact import Redactor

_PARALLEL = 32
_LONGEST_LINE = 64 << 10
"""Bytes after which a line is cut, so that a stream without line ends needs no more memory."""
_COLOURS = (36, 33, 35, 32, 34, 31)
"""Of the prefixes on a terminal, in turn; see ECMA-48."""


@dataclass(slots=True)
class _End:
    """How the command ended in one target."""

    code: int | None = None
    """None if it did not run, or was ended."""
    reason: str = "not started"
    duration_s: float = 0.0


def run_many(arguments: RunArguments) -> int:
    """Run the command in all targets, and return the highest exit code; a target that fails counts as 125.

    Raises:
        UsageError: an option does not fit several targets, or a target is wrong; nothing ran.
    """
    _refuse_options(arguments)
    settings = read_settings()
    texts = expand_groups(arguments.on, settings.groups)
    plans = [plan_personal(text, settings) for text in texts]
    return interruptible.run(_Fleet(texts, plans, arguments).run())


def _refuse_options(arguments: RunArguments) -> None:
    for option, is_set in (("--pty", arguments.pty), ("--stdin", arguments.stdin)):
        if is_set:
            raise UsageError(f"{option} is for one target", remedy="leave it out, or name one target")
    arguments.stdin = False


class _Fleet:
    """One command in several targets."""

    def __init__(self, texts: Sequence[str], plans: Sequence[Plan], arguments: RunArguments) -> None:
        self._arguments = arguments
        self._plans = dict(zip(texts, plans, strict=True))
        self._ends = {text: _End() for text in texts}
        self._gate = asyncio.Semaphore(arguments.max_parallel or _PARALLEL)
        self._work: Callable[[str, Plan], Awaitable[int]] = self._run_live
        if arguments.detach:
            self._work = self._start_job
        elif arguments.json:
            self._work = self._run_to_json

    async def run(self) -> int:
        redactor = flags.redactor if self._arguments.redact else None
        self._writers = _Writers(list(self._plans), redactor)
        tasks = [asyncio.ensure_future(self._run_in(text, plan)) for text, plan in self._plans.items()]
        try:
            for done in asyncio.as_completed(tasks):
                if await done != 0 and self._arguments.fail_fast:
                    break
        finally:
            await cancel_and_wait(tasks)
            self._writers.close()
            self._print_ends()
        return max(end.code or 0 for end in self._ends.values())

    async def _run_in(self, text: str, plan: Plan) -> int:
        end = self._ends[text]
        async with self._gate:
            end.reason, began = "ended, because the others were stopped", time.monotonic()
            try:
                end.code = await self._work(text, plan)
                end.reason = ""
            except BrokenPipeError:
                end.reason = "ended, because the reader of the output has ended"
                raise
            except (HermesError, OSError) as error:
                reason = error.strerror if isinstance(error, OSError) else None
                end.code, end.reason = OURS, flags.clean(reason or describe_error(error))
                if self._arguments.json:
                    print_json_line({"target": text, "error": end.reason})
            finally:
                end.duration_s = time.monotonic() - began
        return end.code

    async def _run_live(self, text: str, plan: Plan) -> int:
        writer = self._writers.create(text)
        async with open_planned(plan) as terminal, start_stream(terminal, self._arguments) as stream:
            async for event in stream:
                if event.result is None:
                    await writer.write(event.kind, event.data)
            result = await stream.result()
            await writer.flush()
        if result.timed_out or result.limit or result.note:
            say(f"{text}: {result.note or result.reason}")
        return result.shell_code

    async def _run_to_json(self, text: str, plan: Plan) -> int:
        facts, code = await capture_command(plan, self._arguments)
        print_json_line(facts | {"target": text})
        return code

    async def _start_job(self, text: str, plan: Plan) -> int:
        facts = await start_job(plan, self._arguments)
        if self._arguments.json:
            print_json_line(facts | {"target": text})
        else:
            print(f"{text}  {facts['job']}", flush=True)
        return 0

    def _print_ends(self) -> None:
        rows = [("TARGET", "EXIT", "TIME", "")]
        for text, end in self._ends.items():
            code = "-" if end.code is None else str(end.code)
            rows.append((text, code, f"{end.duration_s:.1f}s", " ".join(end.reason.split())))
        for line in align_columns(rows):
            note(line)


class _Writers:
    """Our two outputs, shared by the targets."""

    def __init__(self, texts: Sequence[str], redactor: Redactor | None) -> None:
        self.redactor = redactor
        self.outputs = {"stdout": Output(1, None), "stderr": Output(2, None)}
        self._texts = texts
        self._width = max(map(len, texts))
        plain = "NO_COLOR" in os.environ
        self._coloured = {"stdout": sys.stdout.isatty() and not plain, "stderr": sys.stderr.isatty() and not plain}

    def create(self, text: str) -> _LineWriter:
        colour = _COLOURS[self._texts.index(text) % len(_COLOURS)]
        padded = f"{text:{self._width}} | "
        prefixes = {
            kind: f"\x1b[{colour}m{padded}\x1b[0m" if coloured else padded for kind, coloured in self._coloured.items()
        }
        return _LineWriter(self, prefixes)

    def close(self) -> None:
        for output in self.outputs.values():
            output.close()


class _LineWriter:
    """Writes the whole lines of one target, each with its name in front."""

    def __init__(self, writers: _Writers, prefixes: dict[str, str]) -> None:
        self._outputs = writers.outputs
        self._prefixes = {kind: prefix.encode() for kind, prefix in prefixes.items()}
        self._rest = dict.fromkeys(prefixes, b"")
        redactor = writers.redactor
        self._filters = {kind: redactor.create_stream() for kind in prefixes} if redactor else {}

    async def write(self, kind: str, data: bytes) -> None:
        """Write the lines that ``data`` completes."""
        clean = self._filters[kind].feed(data) if self._filters else data
        *lines, rest = (self._rest[kind] + clean).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            lines.append(rest)
            rest = b""
        self._rest[kind] = rest
        await self._write(kind, lines)

    async def flush(self) -> None:
        """Write what is left; no more follows."""
        for kind, rest in self._rest.items():
            last = rest + (self._filters[kind].flush() if self._filters else b"")
            if last:
                await self._write(kind, last.split(b"\n"))

    async def _write(self, kind: str, lines: Sequence[bytes]) -> None:
        if lines:
            await self._outputs[kind].write(b"".join(self._prefixes[kind] + line + b"\n" for line in lines))
