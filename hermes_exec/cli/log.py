"""``log``: show recorded commands, from the audit log."""

import os
import re
import time
from collections import deque
from typing import Annotated, Any

import typer

from hermes_exec.cli.arguments import parse_since
from hermes_exec.cli.console import note
from hermes_exec.cli.options import Json, On
from hermes_exec.cli.output import format_times, show_json, show_table
from hermes_exec.errors import HermesError, UsageError
from hermes_exec.observe.history import AuditRecord

_SHOWN = 120
"""Characters of a command in the table; --json has all of it."""
_REASON = 40


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(log)


def log(
    on: On = None,
    *,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Show commands since TIME: 2h, 3d, 2026-01-31 or 2026-01-31T18:00."),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Show failed commands only.")] = False,
    grep: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="Show commands that match this regular expression."),
    ] = None,
    last: Annotated[
        int, typer.Option("--last", "-n", metavar="N", min=0, help="Show the last N commands; 0 is all.")
    ] = 50,
    json: Json = False,
) -> int:
    """Show recorded commands: the time, the target, the command, and how it ended. The log has no secrets."""
    from hermes_exec.config.paths import audit_file
    from hermes_exec.observe.history import read_audit

    pattern = _compile_pattern(grep)
    found: deque[AuditRecord] = deque(maxlen=last or None)
    target, unknown = (None, None) if on is None else _resolve_target(on)
    begin = None if since is None else time.time() - parse_since(since)
    for record in read_audit(audit_file(os.environ), target=target, since=begin, failed=failed):
        if pattern is None or pattern.search(record.command):
            found.append(record)
    records = sorted(found, key=lambda record: record.at)
    if unknown is not None and not any(read_audit(audit_file(os.environ), target=target)):
        raise unknown
    if json:
        show_json([_facts(record) for record in records])
    elif records:
        heads = ("AT", "TARGET", "SESSION", "END", "TIME", "OUTPUT", "COMMAND")
        rows = [_row(record) for record in records]
        show_table(heads, rows, drop=("OUTPUT", "SESSION", "TIME", "TARGET"))
    else:
        note("no recorded command matches")
    return 0


def _resolve_target(on: str) -> tuple[str, HermesError | None]:
    """Return the target as records have it. An unknown one, such as a former profile, is unchanged, with its error."""
    from hermes_exec.cli.open_target import read_settings
    from hermes_exec.config.load import resolve

    try:
        return str(resolve(on, read_settings())), None
    except HermesError as error:
        return on, error


def _compile_pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise UsageError(
            f"--grep {text!r} is not a regular expression: {error}", remedy=r"\ before ( [ * + ?"
        ) from None


def _facts(record: AuditRecord) -> dict[str, Any]:
    return format_times({name: getattr(record, name) for name in record.__slots__}, "at")


def _row(record: AuditRecord) -> list[str]:
    text = " ".join(record.command.split())
    return [
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.at)),
        record.target,
        record.session or record.kind,
        _describe_end(record),
        f"{record.duration_s:.3f} s" if record.finished else "",
        f"{record.stdout_bytes + record.stderr_bytes:,} B" if record.finished else "",
        _cut(text, _SHOWN),
    ]


def _describe_end(record: AuditRecord) -> str:
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
