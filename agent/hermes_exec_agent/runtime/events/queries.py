"""Queries of the log: events, summaries of conversations, and full-text search.

A search looks for all words first, then for the rarer ones. A question in plain words, passed to FTS5 unchanged, ranks
half of the log by its commonest word, which takes seconds instead of milliseconds. Text without spaces between words
(Chinese, Japanese, Korean) is indexed letter by letter, and a run of it in a query is a phrase. Models' reasoning has a
table of its own, and is searched only on request.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from hermes_exec_agent.models.protocol import read_thought
from hermes_exec_agent.runtime.events.event import Event

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping

    from hermes_exec_agent.runtime.events.event import Kind


_INDEXED = {"user": 100_000, "assistant": 100_000, "result": 4_000, "warning": 4_000, "failed": 4_000, "ended": 4_000}
"""Characters that are indexed of each kind of event: the output of tools is long, and its beginning matters most."""
_THOUGHTS = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS thoughts"
    """ USING fts5(text, content='', tokenize="porter unicode61 remove_diacritics 2")"""
)
"""Created with the first reasoning, as files of earlier versions have no such table."""
_CJK = r"\u2e80-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\U00020000-\U0003ffff"
_LETTER = re.compile(f"([{_CJK}])")
_TERM = re.compile(rf"[{_CJK}]+|[^\W{_CJK}]+")
_COMMON = 20_000
"""Matches from which on a word only narrows the results of others."""
_MOST_TERMS = 16
_AROUND = 70
_STOP_WORDS = (
    "a an and are as at be but by can did do does for from had has have how i if in into is it its me my of on or our "
    "so that the their them then there these they this to was we were what when where which who why will with you your "
    "der die das und ist in zu den von mit für auf ein eine"
)
_STOP = frozenset(_STOP_WORDS.split())


def index_event(base: sqlite3.Connection, seq: int, kind: Kind, data: Mapping[str, Any]) -> None:
    """Index an event; part of the transaction that records it."""
    if text := _text(kind, data):
        base.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (seq, _space_letters(text)))
    if thought := _read_reasoning(data):
        base.execute(_THOUGHTS)
        base.execute("INSERT INTO thoughts (rowid, text) VALUES (?, ?)", (seq, _space_letters(thought)))


def _space_letters(text: str) -> str:
    return _LETTER.sub(r" \1 ", text)


def search(base: sqlite3.Connection, text: str, limit: int, *, thoughts: bool = False) -> list[SearchHit]:
    """Return the best ``limit`` matches, those with every word first, in messages or in models' reasoning."""
    terms = list(_terms(text))
    table = "thoughts" if thoughts else "words"
    if not terms or (thoughts and not _has_thoughts(base)):
        return []
    seqs = _matches(base, table, " AND ".join(terms), limit)
    if len(seqs) < limit and len(terms) > 1:
        rare = [term for term in terms if _count(base, table, term) < _COMMON]
        some = _matches(base, table, " OR ".join(rare), limit + len(seqs)) if rare else []
        seqs += [seq for seq in some if seq not in seqs]
    plain = [word.replace(" ", "").strip('"') for word in terms]
    return [_load_hit(base, seq, plain, thoughts=thoughts) for seq in seqs[:limit]]


def _terms(text: str) -> Iterator[str]:
    """Yield FTS5's terms: every word as a string, so that none is taken for an operator."""
    words = list(dict.fromkeys(match.group().lower() for match in _TERM.finditer(text)))
    telling = [word for word in words if word not in _STOP] or words
    for word in telling[:_MOST_TERMS]:
        yield f'"{_space_letters(word).strip()}"'


def _has_thoughts(base: sqlite3.Connection) -> bool:
    return base.execute("SELECT 1 FROM sqlite_schema WHERE name = 'thoughts'").fetchone() is not None


def _matches(base: sqlite3.Connection, table: str, query: str, limit: int) -> list[int]:
    rows = base.execute(
        f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY rank LIMIT ?",  # noqa: S608  one of our own two
        (query, limit),
    ).fetchall()
    return [seq for (seq,) in rows]


def _count(base: sqlite3.Connection, table: str, term: str) -> int:
    (count,) = base.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {table} MATCH ? LIMIT ?)",  # noqa: S608  one of our own two
        (term, _COMMON),
    ).fetchone()
    return int(count)


def _load_hit(base: sqlite3.Connection, seq: int, words: list[str], *, thoughts: bool) -> SearchHit:
    conversation, number, at, kind, data = base.execute(
        "SELECT conversation, number, at, kind, data FROM events WHERE seq = ?", (seq,)
    ).fetchone()
    fields = json.loads(data)
    snippet = _snippet(_read_reasoning(fields) if thoughts else _text(kind, fields), words)
    return SearchHit(conversation, read_title(base, conversation), number, at, kind, snippet)


def _text(kind: Kind, data: Mapping[str, Any]) -> str:
    most = _INDEXED.get(kind)
    if most is None:
        return ""
    content = str(data.get("error" if kind == "failed" else "content") or "")
    calls = [f"{call.get('name')} {call.get('arguments')}" for call in data.get("tool_calls") or ()]
    whole = "\n".join([content, *calls])[:most].strip()
    return whole.encode("utf-8", "replace").decode()


def _read_reasoning(data: Mapping[str, Any]) -> str:
    return read_thought(data.get("extras")).strip()[: _INDEXED["assistant"]].encode("utf-8", "replace").decode()


def _snippet(text: str, words: list[str]) -> str:
    low = text.lower()
    places = [place for word in words if (place := low.find(word)) >= 0]
    start = max(min(places, default=0) - _AROUND, 0)
    end = start + 2 * _AROUND
    line = " ".join(text[start:end].split())
    line = "".join(letter if letter.isprintable() else "\ufffd" for letter in line)
    return ("…" if start else "") + line + ("…" if end < len(text) else "")


_TITLE = 100
"""Characters of a title."""


@dataclass(frozen=True, slots=True)
class Summary:
    """One conversation in a list."""

    id: str
    title: str
    """The first line of the person's first message; escape it before a terminal shows it."""
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
class SearchHit:
    """An event that matches a search."""

    conversation: str
    title: str
    number: int
    """Of the event."""
    at: float
    kind: Kind
    snippet: str
    """The words around the match, on one line."""


def last_number(base: sqlite3.Connection, conversation: str) -> int:
    """Return the number of a conversation's last event, or 0."""
    (number,) = base.execute("SELECT max(number) FROM events WHERE conversation = ?", (conversation,)).fetchone()
    return number or 0


def read_events(base: sqlite3.Connection, conversation: str, since: int) -> list[Event]:
    """Return a conversation's events after ``since``, in order."""
    rows = base.execute(
        "SELECT number, at, kind, data FROM events WHERE conversation = ? AND number > ? ORDER BY number",
        (conversation, since),
    ).fetchall()
    return [Event(conversation, number, at, kind, json.loads(data)) for number, at, kind, data in rows]


def find_ids(base: sqlite3.Connection, start: str) -> list[str]:
    """Return the ids that begin with ``start``."""
    rows = base.execute(
        "SELECT DISTINCT conversation FROM events WHERE conversation >= ? AND conversation < ? || x'f48fbfbf'",
        (start, start),
    ).fetchall()
    return [conversation for (conversation,) in rows]


def list_conversations(base: sqlite3.Connection, limit: int, before: str | None) -> list[Summary]:
    """Return the latest conversations, after ``before`` in that order."""
    found = base.execute(
        "SELECT conversation, max(seq) AS latest, count(*) FROM events WHERE kind NOT IN ('memory', 'claim')"
        " GROUP BY conversation HAVING ? IS NULL OR latest < (SELECT max(seq) FROM events WHERE conversation = ?)"
        " ORDER BY latest DESC LIMIT ?",
        (before, before, limit),
    ).fetchall()
    return [_summary(base, conversation, latest, count) for conversation, latest, count in found]


def read_title(base: sqlite3.Connection, conversation: str) -> str:
    """Return the first line of the person's first message."""
    row = _read_first(base, conversation, "user")
    content = str(row[1].get("content", "")).strip() if row else ""
    line = content.splitlines()[0] if content else ""
    return line if len(line) <= _TITLE else line[: _TITLE - 1] + "…"


def _summary(base: sqlite3.Connection, conversation: str, latest: int, count: int) -> Summary:
    (last_at,) = base.execute("SELECT at FROM events WHERE seq = ?", (latest,)).fetchone()
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
