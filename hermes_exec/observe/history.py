"""Read the audit: one record for each command, from the oldest file to the newest."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from hermes_exec.observe.audit import LARGEST

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One recorded command, finished or still running."""

    at: float
    """When it was sent, in seconds since 1970."""
    id: str
    target: str
    session: str
    kind: str
    cwd: str
    command: str
    """Its text without secrets; only the beginning of a long one."""
    command_length: int | None = None
    """Characters of a command that was too long to be recorded whole."""
    command_sha256: str | None = None
    finished: bool = False
    """Whether its end was recorded. If not, it still runs, or its orchestrator died."""
    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    duration_s: float = 0.0
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    error: str = ""
    """Why it has neither exit code nor signal: refused, cancelled, or lost."""

    @property
    def failed(self) -> bool:
        """Whether it ended other than with exit code 0; False while its end is not recorded."""
        return self.finished and (self.exit_code != 0 or self.timed_out)


def read_audit(
    path: Path, *, target: str | None = None, since: float | None = None, failed: bool = False
) -> Iterator[AuditRecord]:
    """Iterate over the commands in the order of their ends; those without an end come last.

    ``since`` is in seconds since 1970, ``target`` a target as it was recorded. A line that is torn, or not a valid
    record, is skipped.

    Raises:
        OSError: a file exists and cannot be read. An audit that does not exist is an empty one.
    """
    open_ones: dict[tuple[str, str], AuditRecord] = {}
    for table in _tables(path):
        key = (_text(table, "run"), _text(table, "id"))
        if table.get("event") == "start":
            record = _read_start(table)
            if (target is None or record.target == target) and (since is None or record.at >= since):
                # A job may end under another orchestrator than the one that started it; its id is unique.
                open_ones[("", key[1]) if record.kind == "job" else key] = record
        elif table.get("event") == "end":
            begun = open_ones.pop(key, None) or open_ones.pop(("", key[1]), None)
            if begun is None:
                continue
            record = _read_end(begun, table)
            if record.failed or not failed:
                yield record
    if not failed:
        yield from open_ones.values()


def find_unfinished(path: Path, ids: Collection[str]) -> set[str]:
    """Return the ids, out of ``ids``, of jobs that have a start in the audit and no end.

    Raises:
        OSError: as ``read_audit``.
    """
    events: dict[str, set[object]] = {id: set() for id in ids}
    for table in _tables(path, re.compile(b"|".join(re.escape(json.dumps(id).encode()) for id in ids))):
        events.get(_text(table, "id"), set()).add(table.get("event"))
    return {id for id, seen in events.items() if "start" in seen and "end" not in seen}


def _tables(path: Path, about: re.Pattern[bytes] = re.compile(b"")) -> Iterator[dict[str, object]]:
    older = [file for file in path.parent.glob(f"{path.name}.*") if file.suffix[1:].isdecimal()]
    for file in [*sorted(older, key=lambda file: -int(file.suffix[1:])), path]:
        try:
            stream = file.open("rb")
        except FileNotFoundError:
            continue
        with stream:
            # A record is never longer; a longer line is not a record and is read in pieces, which are skipped.
            while line := stream.readline(LARGEST):
                if about.search(line) is None:  # much faster than parsing it
                    continue
                try:
                    table: object = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(table, dict):
                    yield cast("dict[str, object]", table)


def _read_start(table: dict[str, object]) -> AuditRecord:
    return AuditRecord(
        at=_number(table, "at") or 0.0,
        id=_text(table, "id"),
        target=_text(table, "target"),
        session=_text(table, "session"),
        kind=_text(table, "kind"),
        cwd=_text(table, "cwd"),
        command=_text(table, "command"),
        command_length=_whole(table, "command_length"),
        command_sha256=_text(table, "command_sha256") or None,
    )


def _read_end(begun: AuditRecord, table: dict[str, object]) -> AuditRecord:
    return replace(
        begun,
        finished=True,
        exit_code=_whole(table, "exit_code"),
        signal=_whole(table, "signal"),
        timed_out=table.get("timed_out") is True,
        duration_s=_number(table, "duration_s") or 0.0,
        stdout_bytes=_whole(table, "stdout_bytes") or 0,
        stderr_bytes=_whole(table, "stderr_bytes") or 0,
        error=_text(table, "error"),
    )


def _text(table: dict[str, object], key: str) -> str:
    value = table.get(key)
    return value if isinstance(value, str) else ""


def _number(table: dict[str, object], key: str) -> float | None:
    value = table.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(table: dict[str, object], key: str) -> int | None:
    value = table.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
