"""The search index of the log: FTS5 tables that can be rebuilt from the events alone.

| table | tokens | text |
|---|---|---|
| `words` | porter's stems, Chinese, Japanese and Korean letter by letter | messages, and the beginning of results |
| `fragments` | trigrams, for parts of identifiers and of words without spaces | the same, shorter |
| `note_words` | as in `words` | notes of conversations |
| `thoughts` | as in `words` | models' reasoning |

All are contentless. An external-content table needs a column with the plain text next to the JSON of the events: 8 MB
of texts took 4.4 MB contentless and 15.4 MB with such a column. Nothing is gained by that, as events never change, and
snippets are cut from the events. Trigrams without positions (``detail=none``) took 7 MB instead of 27 MB; a match is
verified in the text.

An event is indexed in the transaction that records it. A table that was created, or emptied, later has a row in
``indexing`` with the part of the log that is still missing, and `fill` adds a bounded piece of it.
"""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hermes_exec_agent.models.protocol import read_thought
from hermes_exec_agent.runtime.events.event import NOTES

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping

_PORTER = """text, content='', tokenize="porter unicode61 remove_diacritics 2\""""
TABLES = {
    "words": _PORTER,
    "fragments": "text, content='', tokenize='trigram', detail=none",
    "note_words": _PORTER,
    "thoughts": _PORTER,
}
_STATE = """
CREATE TABLE IF NOT EXISTS indexing (name TEXT PRIMARY KEY, upto INTEGER NOT NULL, goal INTEGER NOT NULL) STRICT
"""
_BY_TIME = "CREATE INDEX IF NOT EXISTS events_by_time ON events (at)"
_LATEST_NOTES = "CREATE TABLE IF NOT EXISTS latest_notes (conversation TEXT PRIMARY KEY, seq INTEGER NOT NULL) STRICT"
_INDEXED = {
    "user": 100_000,
    "assistant": 100_000,
    "steered": 20_000,
    "result": 4_000,
    "warning": 4_000,
    "failed": 4_000,
    "ended": 4_000,
}
"""Characters that are indexed of each kind of event: the output of tools is long, and its beginning matters most."""
_FRAGMENTS = {"user": 20_000, "assistant": 20_000, "result": 2_000}
"""The same for trigrams, which take more space."""
CJK = r"\u2e80-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\U00020000-\U0003ffff"
_LETTER = f"([{CJK}])"  # compiled by its first use, which takes milliseconds
_FOREIGN = ("no such module", "no such tokenizer", "no such function", "fts5: syntax")
"""Beginnings of errors that a damaged table does not cause."""


class IndexDamaged(Exception):
    """A table of the index cannot be read or written; `reset` empties it."""

    def __init__(self, table: str) -> None:
        super().__init__(table)
        self.table = table


@contextmanager
def guard_table(table: str) -> Generator[None]:
    """Turn errors of a damaged table into `IndexDamaged`."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE) & 0xFF
        damaged = code in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CONSTRAINT)
        if not damaged or str(error).startswith(_FOREIGN):
            raise
        raise IndexDamaged(table) from error


def prepare(base: sqlite3.Connection) -> None:
    """Create the tables that are missing, as in a log of an earlier version; part of a transaction that writes."""
    known = {name for (name,) in base.execute("SELECT name FROM sqlite_schema").fetchall()}
    missing = [name for name in TABLES if name not in known]
    if not missing and "indexing" in known:
        return
    (last,) = base.execute("SELECT max(seq) FROM events").fetchone()
    base.execute(_STATE)
    base.execute(_LATEST_NOTES)
    if not last:
        base.execute(_BY_TIME)
    for name in missing:
        _create(base, name, last or 0)


def _create(base: sqlite3.Connection, name: str, goal: int) -> None:
    base.execute(f"CREATE VIRTUAL TABLE {name} USING fts5({TABLES[name]})")
    if goal:
        base.execute("INSERT OR REPLACE INTO indexing (name, upto, goal) VALUES (?, 0, ?)", (name, goal))


def reset(base: sqlite3.Connection, names: Collection[str]) -> None:
    """Empty tables, damaged ones as well, so that `fill` indexes all events again; part of a transaction."""
    (last,) = base.execute("SELECT max(seq) FROM events").fetchone()
    base.execute(_STATE)
    base.execute("PRAGMA writable_schema = ON")  # a damaged table cannot be dropped
    marks = [(name, name + ending) for name in names for ending in ("", "_data", "_idx", "_docsize", "_config")]
    base.executemany("DELETE FROM sqlite_schema WHERE name = ?", [(name,) for name, whole in marks if name == whole])
    base.execute("PRAGMA writable_schema = RESET")
    for name, whole in marks:
        if name != whole:
            base.execute(f"DROP TABLE IF EXISTS {whole}")
    for name in names:
        _create(base, name, last or 0)
    if "note_words" in names:
        _list_notes_again(base)


def _list_notes_again(base: sqlite3.Connection) -> None:
    base.execute("DROP TABLE IF EXISTS latest_notes")
    base.execute(_LATEST_NOTES)
    rows = base.execute("SELECT seq, data FROM events WHERE conversation = ? AND kind = 'note'", (NOTES,))
    for seq, data in rows:  # one by one, as there may be many
        _list_note(base, seq, json.loads(data))


def _list_note(base: sqlite3.Connection, seq: int, data: Mapping[str, Any]) -> None:
    base.execute(
        "INSERT INTO latest_notes (conversation, seq) VALUES (?, ?)"
        " ON CONFLICT (conversation) DO UPDATE SET seq = max(seq, excluded.seq)",
        (str(data["conversation"]), seq),
    )


def is_unfinished(base: sqlite3.Connection) -> bool:
    """Whether the index lacks events that were recorded before."""
    there = base.execute("SELECT 1 FROM sqlite_schema WHERE name = 'indexing'").fetchone()
    return there is None or base.execute("SELECT 1 FROM indexing LIMIT 1").fetchone() is not None


def fill(base: sqlite3.Connection, most: int) -> int:
    """Index up to ``most`` events that one table lacks, and return how many were examined; part of a transaction."""
    base.execute(_BY_TIME)
    row = base.execute("SELECT name, upto, goal FROM indexing ORDER BY name DESC LIMIT 1").fetchone()
    if row is None:
        return 0
    name, upto, goal = row
    rows = base.execute(
        "SELECT seq, kind, data FROM events WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?", (upto, goal, most)
    ).fetchall()
    for seq, kind, data in rows:
        _insert(base, name, seq, kind, json.loads(data))
    if not rows or rows[-1][0] >= goal:
        base.execute("DELETE FROM indexing WHERE name = ?", (name,))
    else:
        base.execute("UPDATE indexing SET upto = ? WHERE name = ?", (rows[-1][0], name))
    return len(rows)


def index_event(base: sqlite3.Connection, seq: int, kind: str, data: Mapping[str, Any]) -> None:
    """Index an event; part of the transaction that records it.

    Raises:
        IndexDamaged: a table is damaged; the transaction has to be repeated after `reset`.
    """
    for name in TABLES:
        _insert(base, name, seq, kind, data)
    if kind == "note":
        _list_note(base, seq, data)


def _insert(base: sqlite3.Connection, name: str, seq: int, kind: str, data: Mapping[str, Any]) -> None:
    text = _text_of(name, kind, data)
    if text:
        with guard_table(name):
            base.execute(f"INSERT INTO {name} (rowid, text) VALUES (?, ?)", (seq, text))  # noqa: S608  one of our own


def _text_of(name: str, kind: str, data: Mapping[str, Any]) -> str:
    if name == "thoughts":
        return space_letters(read_reasoning(data))
    if name == "note_words":
        return space_letters(read_text(kind, data)) if kind == "note" else ""
    if kind == "note":
        return ""
    return read_fragments(kind, data) if name == "fragments" else space_letters(read_text(kind, data))


def space_letters(text: str) -> str:
    """Return the text with a space on both sides of each letter of Chinese, Japanese and Korean."""
    return text if text.isascii() else re.sub(_LETTER, r" \1 ", text)


def read_fragments(kind: str, data: Mapping[str, Any]) -> str:
    """Return the text of an event whose parts are indexed."""
    return read_text(kind, data)[: _FRAGMENTS.get(kind, 0)]


def read_text(kind: str, data: Mapping[str, Any]) -> str:
    """Return the text of an event that is indexed."""
    if kind == "note":
        whole = "\n".join(str(each["text"]) for each in data.get("sentences", ()))
    elif kind in _INDEXED:
        content = str(data.get("error" if kind == "failed" else "content") or "")
        calls = [f"{call.get('name')} {call.get('arguments')}" for call in data.get("tool_calls") or ()]
        whole = "\n".join([content, *calls])[: _INDEXED[kind]].strip()
    else:
        return ""
    return whole.encode("utf-8", "replace").decode()


def read_reasoning(data: Mapping[str, Any]) -> str:
    """Return the reasoning of an event that is indexed."""
    return read_thought(data.get("extras")).strip()[: _INDEXED["assistant"]].encode("utf-8", "replace").decode()
