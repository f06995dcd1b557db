"""Reads of the whole log in the order of recording, for what is derived from it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from hermes_exec_agent.runtime.events.event import Event

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from hermes_exec_agent.runtime.events.event import Kind


def read_identity(base: sqlite3.Connection) -> str:
    """Return a digest of the first event, which identifies the log and its copies; empty without events."""
    row = base.execute("SELECT conversation, at, kind FROM events ORDER BY seq LIMIT 1").fetchone()
    return hashlib.sha256("\n".join(map(str, row)).encode()).hexdigest()[:16] if row else ""


def read_after(
    base: sqlite3.Connection, after: int, kinds: Sequence[Kind], marker: str, limit: int
) -> tuple[list[Event], int]:
    """Return events after a position, and the position up to which they were read.

    Args:
        base: the database.
        after: a position, 0 for the beginning.
        kinds: of the events.
        marker: text that results of tools must have to be returned.
        limit: the most events; with fewer, the position is the end of the log.
    """
    (last,) = base.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
    marks = ", ".join("?" * len(kinds))
    rows = base.execute(
        f"SELECT seq, conversation, number, at, kind, data FROM events WHERE seq > ? AND seq <= ? AND kind IN ({marks})"  # noqa: S608  marks alone
        " AND (kind <> 'result' OR instr(data, ?) > 0) ORDER BY seq LIMIT ?",
        (after, last, *kinds, marker, limit),
    ).fetchall()
    events = [
        Event(conversation, number, at, kind, json.loads(data)) for _, conversation, number, at, kind, data in rows
    ]
    return events, (int(rows[-1][0]) if len(rows) == limit else max(int(last), after))
