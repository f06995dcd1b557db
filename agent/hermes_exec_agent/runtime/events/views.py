"""What the log tells of conversations."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from hermes_exec_agent.runtime.events.event import Event

if TYPE_CHECKING:
    import sqlite3

    from hermes_exec_agent.runtime.events.event import Kind

_TITLE = 100
"""Characters of a title."""


@dataclass(frozen=True, slots=True)
class Summary:
    """One conversation, as a list shows it."""

    id: str
    title: str
    """The first line that the person wrote; text of theirs, so escape it before a terminal shows it."""
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
    """The conversation that it was delegated from, or nothing."""


@dataclass(frozen=True, slots=True)
class Found:
    """A place where something was said."""

    conversation: str
    title: str
    number: int
    """Of the event."""
    at: float
    kind: Kind
    snippet: str
    """The words around, on one line."""


def last(base: sqlite3.Connection, conversation: str) -> int:
    """The number of its last event, or 0."""
    (number,) = base.execute("SELECT max(number) FROM events WHERE conversation = ?", (conversation,)).fetchone()
    return number or 0


def events(base: sqlite3.Connection, conversation: str, since: int) -> list[Event]:
    """Those after ``since``, in their order."""
    rows = base.execute(
        "SELECT number, at, kind, data FROM events WHERE conversation = ? AND number > ? ORDER BY number",
        (conversation, since),
    ).fetchall()
    return [Event(conversation, number, at, kind, json.loads(data)) for number, at, kind, data in rows]


def beginning(base: sqlite3.Connection, start: str) -> list[str]:
    """The ids that begin with ``start``."""
    rows = base.execute(
        "SELECT DISTINCT conversation FROM events WHERE conversation >= ? AND conversation < ? || x'f48fbfbf'",
        (start, start),
    ).fetchall()
    return [conversation for (conversation,) in rows]


def conversations(base: sqlite3.Connection, limit: int, before: str | None) -> list[Summary]:
    """The latest, after ``before`` in that order."""
    found = base.execute(
        "SELECT conversation, max(seq) AS latest, count(*) FROM events GROUP BY conversation"
        " HAVING ? IS NULL OR latest < (SELECT max(seq) FROM events WHERE conversation = ?)"
        " ORDER BY latest DESC LIMIT ?",
        (before, before, limit),
    ).fetchall()
    return [_summary(base, conversation, latest, count) for conversation, latest, count in found]


def title(base: sqlite3.Connection, conversation: str) -> str:
    """The first line that the person wrote."""
    row = _first(base, conversation, "user")
    content = str(row[1].get("content", "")).strip() if row else ""
    line = content.splitlines()[0] if content else ""
    return line if len(line) <= _TITLE else line[: _TITLE - 1] + "…"


def _summary(base: sqlite3.Connection, conversation: str, latest: int, count: int) -> Summary:
    (last_at,) = base.execute("SELECT at FROM events WHERE seq = ?", (latest,)).fetchone()
    (turns,) = base.execute(
        "SELECT count(*) FROM events WHERE conversation = ? AND kind = 'user'", (conversation,)
    ).fetchone()
    began, facts = _first(base, conversation, "started") or (last_at, cast("dict[str, Any]", {}))
    return Summary(
        id=conversation,
        title=title(base, conversation),
        started=began,
        last=last_at,
        turns=turns,
        events=count,
        target=str(facts.get("target", "")),
        model=str(facts.get("model", "")),
        scripted=bool(facts.get("scripted")),
        parent=str(facts.get("parent") or ""),
    )


def _first(base: sqlite3.Connection, conversation: str, kind: str) -> tuple[float, dict[str, Any]] | None:
    row = base.execute(
        "SELECT at, data FROM events WHERE conversation = ? AND kind = ? ORDER BY number LIMIT 1", (conversation, kind)
    ).fetchone()
    return (row[0], json.loads(row[1])) if row else None
