"""``log``: the commands of the past, from the audit."""

import os
import re
import time
from collections import deque
from datetime import datetime
from typing import Annotated, Any

import typer

from hermes_exec.cli.arguments import seconds
from hermes_exec.cli.console import note
from hermes_exec.cli.options import Json, On
from hermes_exec.cli.output import show_json, show_table
from hermes_exec.errors import HermesError, UsageError
from hermes_exec.observe.history import Record

_SHOWN = 120
"""Characters of a command in the table; JSON has it all."""
_REASON = 40


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(log)


def log(
    on: On = None,
    *,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="From then on: 2h, 3d, 2026-01-31 or 2026-01-31T18:00.")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only those that did not succeed.")] = False,
    grep: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="Only those with this in their text (a regular expression)."),
    ] = None,
    last: Annotated[
        int, typer.Option("--last", "-n", metavar="N", min=0, help="Only the last so many; 0 is all.")
    ] = 50,
    json: Json = False,
) -> int:
    """Show the commands of the past: when, where, what, and how each ended. Secrets are not in it."""
    from hermes_exec.config.paths import audit_file
    from hermes_exec.observe.history import read_audit

    pattern = _pattern(grep)
    found: deque[Record] = deque(maxlen=last or None)
    target = None if on is None else _target(on)
    for record in read_audit(audit_file(os.environ), target=target, since=_since(since), failed=failed):
        if pattern is None or pattern.search(record.command):
            found.append(record)
    if json:
        show_json([_facts(record) for record in found])
    elif found:
        heads = ("AT", "PLACE", "SESSION", "END", "TIME", "OUTPUT", "COMMAND")
        show_table(heads, [_row(record) for record in sorted(found, key=lambda record: record.at)])
    else:
        note("nothing is recorded that fits")
    return 0


def _target(on: str) -> str:
    """The target as records have it; a place that is no longer known is looked for by its own word."""
    from hermes_exec.cli.open_target import settings
    from hermes_exec.config.load import resolve

    try:
        return str(resolve(on, settings()))
    except HermesError:
        return on


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise UsageError(f"--grep {text!r} is no regular expression: {error}") from None


def _since(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError:
        return time.time() - seconds(text)


def _facts(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


def _row(record: Record) -> list[str]:
    text = " ".join(record.command.split())
    return [
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.at)),
        record.target,
        record.session or record.kind,
        _end(record),
        f"{record.duration_s:.3f} s" if record.finished else "",
        f"{record.stdout_bytes + record.stderr_bytes:,} B" if record.finished else "",
        _cut(text, _SHOWN),
    ]


def _end(record: Record) -> str:
    from hermes_exec.result import signal_name

    if not record.finished:
        return "no end recorded"
    if record.timed_out:
        return "time limit"
    if record.signal is not None:
        return signal_name(record.signal)
    if record.exit_code is None:
        return _cut(record.error or "unknown", _REASON)
    return f"exit code {record.exit_code}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
