"""Queries of the log: beginnings and summaries of conversations, notes, and reads of the whole log in its order."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from hermes_exec_agent.runtime.events.event import STREAM_KINDS, Event

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from hermes_exec_agent.runtime.events.event import Kind

_OTHERS = str(STREAM_KINDS)
_TITLE = 100
"""Characters of a title."""


@dataclass(frozen=True, slots=True)
class Summary:
    """One conversation in a list."""

    id: str
    title: str
    """Given by the person, else the first line of their first message; escape it before a terminal shows it."""
    started: float
    """Seconds since 1970, UTC."""
    last: float
    """When its last event was."""
    turns: int
    events: int
    target: str
    model: str
    scripted: bool
    """Whether the replies were written beforehand."""
    parent: str
    """The conversation that delegated it; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Start:
    """The beginning of a conversation."""

    target: str
    parent: str
    """The conversation that delegated it; empty if there is none."""
    person: str
    """The person that it belongs to; empty for the owner."""


def find_ids(base: sqlite3.Connection, start: str, limit: int = -1) -> list[str]:
    """Return the first ``limit`` ids that begin with ``start``, those of streams too; all if it is negative."""
    rows = base.execute(
        "WITH RECURSIVE ids(id) AS (SELECT min(conversation) FROM events WHERE conversation >= ?1 UNION ALL"
        " SELECT (SELECT min(conversation) FROM events WHERE conversation > id) FROM ids"
        " WHERE id < ?1 || x'f48fbfbf')"
        " SELECT id FROM ids WHERE id < ?1 || x'f48fbfbf' LIMIT ?2",
        (start, limit),
    ).fetchall()
    return [conversation for (conversation,) in rows]


def list_conversations(base: sqlite3.Connection, limit: int, before: str | None) -> list[Summary]:
    """Return the latest conversations, after ``before`` in that order; read from the end of the log."""
    end = None if before is None else _latest(base, before)
    if before is not None and end is None:
        return []
    rows = base.execute(
        f"SELECT seq, conversation FROM events WHERE (?1 IS NULL OR seq < ?1) AND kind NOT IN {_OTHERS}"  # noqa: S608  a constant
        " ORDER BY seq DESC",
        (end,),
    )
    seen, found = set[str](), list[Summary]()
    for seq, conversation in rows:
        if len(found) == limit:
            break
        if conversation not in seen:
            seen.add(conversation)
            if _latest(base, conversation) == seq:  # none after ``before``
                found.append(_summary(base, conversation, seq))
    return found


def _latest(base: sqlite3.Connection, conversation: str) -> int | None:
    """Return the position of a conversation's last event; None if there is no such conversation."""
    row = base.execute(
        f"SELECT seq FROM events WHERE conversation = ? AND kind NOT IN {_OTHERS} ORDER BY number DESC LIMIT 1",  # noqa: S608  a constant
        (conversation,),
    ).fetchone()
    return int(row[0]) if row else None


def last_activity(base: sqlite3.Connection, apart_from: str) -> float | None:
    """Return the time of the last event of any conversation but ``apart_from``."""
    row = base.execute(
        f"SELECT at FROM events WHERE kind NOT IN {_OTHERS} AND conversation <> ? ORDER BY seq DESC LIMIT 1",  # noqa: S608  a constant
        (apart_from,),
    ).fetchone()
    return float(row[0]) if row else None


def list_newest_ids(base: sqlite3.Connection, limit: int) -> list[str]:
    """Return the last ``limit`` ids in their order, which is that of their beginnings; fast in a log of any size."""
    rows = base.execute(
        "WITH RECURSIVE ids(id) AS (SELECT max(conversation) FROM events UNION ALL"
        " SELECT (SELECT max(conversation) FROM events WHERE conversation < id) FROM ids WHERE id IS NOT NULL)"
        " SELECT id FROM ids WHERE id IS NOT NULL LIMIT ?",
        (limit,),
    ).fetchall()
    return [conversation for (conversation,) in rows]


def list_targets(base: sqlite3.Connection) -> list[str]:
    """Return the targets of all conversations, sorted."""
    rows = base.execute("SELECT DISTINCT json_extract(data, '$.target') FROM events WHERE kind = 'started' ORDER BY 1")
    return [str(target) for (target,) in rows]


def list_children(base: sqlite3.Connection) -> dict[str, list[str]]:
    """Return the conversations that have a parent, by its id, in the order of their beginnings."""
    rows = base.execute(
        "SELECT json_extract(data, '$.parent'), conversation FROM events"
        " WHERE kind = 'started' AND coalesce(json_extract(data, '$.parent'), '') <> '' ORDER BY seq"
    )
    found: dict[str, list[str]] = {}
    for parent, conversation in rows:
        found.setdefault(str(parent), []).append(str(conversation))
    return found


def read_note(base: sqlite3.Connection, conversation: str) -> Event | None:
    """Return the event of a conversation's latest note; None without any."""
    if base.execute("SELECT 1 FROM sqlite_schema WHERE name = 'latest_notes'").fetchone() is None:
        return None
    row = base.execute(
        "SELECT events.conversation, number, at, data FROM latest_notes JOIN events USING (seq)"
        " WHERE latest_notes.conversation = ?",
        (conversation,),
    ).fetchone()
    return Event(row[0], row[1], row[2], "note", json.loads(row[3])) if row else None


def read_first(base: sqlite3.Connection, conversation: str) -> Event | None:
    """Return a conversation's first event; None without any."""
    row = base.execute(
        "SELECT number, at, kind, data FROM events WHERE conversation = ? ORDER BY number LIMIT 1", (conversation,)
    ).fetchone()
    return Event(conversation, row[0], row[1], row[2], json.loads(row[3])) if row else None


def read_start(base: sqlite3.Connection, conversation: str) -> Start:
    """Return the beginning of a conversation; its fields are empty if it is not recorded."""
    found = _read_first(base, conversation, "started")
    facts = found[1] if found else {}
    return Start(*(str(facts.get(name) or "") for name in ("target", "parent", "person")))


def sum_cost(base: sqlite3.Connection, since: float) -> float:
    """Return the known cost of all replies after ``since``; a delegated task counts by its own conversation alone."""
    (total,) = base.execute(
        "SELECT sum(json_extract(data, '$.usage.cost')) FROM events WHERE at >= ? AND (kind = 'note'"
        " OR kind IN ('assistant', 'compacted') OR kind = 'spent' AND json_extract(data, '$.conversation') IS NULL)",
        (since,),
    ).fetchone()
    return float(total or 0.0)


def read_title(base: sqlite3.Connection, conversation: str) -> str:
    """Return the title that the person gave, else the first line of their first message."""
    given = base.execute(
        "SELECT data FROM events WHERE conversation = ? AND kind = 'titled' ORDER BY number DESC LIMIT 1",
        (conversation,),
    ).fetchone()
    if given is not None:
        return str(json.loads(given[0])["title"])
    row = _read_first(base, conversation, "user")
    content = str(row[1].get("content", "")).strip() if row else ""
    line = content.splitlines()[0] if content else ""
    return line if len(line) <= _TITLE else line[: _TITLE - 1] + "…"


def _summary(base: sqlite3.Connection, conversation: str, latest: int) -> Summary:
    (last_at,) = base.execute("SELECT at FROM events WHERE seq = ?", (latest,)).fetchone()
    (count,) = base.execute(
        f"SELECT count(*) FROM events WHERE conversation = ? AND kind NOT IN {_OTHERS}",  # noqa: S608  a constant
        (conversation,),
    ).fetchone()
    (turns,) = base.execute(
        "SELECT count(*) FROM events WHERE conversation = ? AND kind = 'user'", (conversation,)
    ).fetchone()
    began, facts = _read_first(base, conversation, "started") or (last_at, cast("dict[str, Any]", {}))
    return Summary(
        id=conversation,
        title=read_title(base, conversation),
        started=began,
        last=last_at,
        turns=turns,
        events=count,
        target=str(facts.get("target", "")),
        model=str(facts.get("model", "")),
        scripted=bool(facts.get("scripted")),
        parent=str(facts.get("parent") or ""),
    )


def _read_first(base: sqlite3.Connection, conversation: str, kind: str) -> tuple[float, dict[str, Any]] | None:
    row = base.execute(
        "SELECT at, data FROM events WHERE conversation = ? AND kind = ? ORDER BY number LIMIT 1", (conversation, kind)
    ).fetchone()
    return (row[0], json.loads(row[1])) if row else None


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
