"""Full-text search of the log.

A search looks for all words first, then for all as parts of words, then for the rarer words. A question in plain words,
passed to FTS5 unchanged, ranks half of the log by its commonest word, which takes seconds instead of milliseconds; so
common words are dropped, and what remains is never combined by a bare OR. A run of Chinese, Japanese or Korean in a
query is a phrase of letters; one that no text has, as a whole question without spaces, is taken for the pairs of its
letters. Notes of conversations are ranked by themselves, and merged with messages by their ranks.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from hermes_exec_agent.runtime.events import queries
from hermes_exec_agent.runtime.events.search_index import (
    CJK,
    guard_table,
    read_fragments,
    read_reasoning,
    read_text,
    space_letters,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from hermes_exec_agent.runtime.events.event import Kind

Scope: TypeAlias = Literal["messages", "results", "notes", "thoughts"]
SCOPES: tuple[Scope, ...] = ("messages", "results", "notes", "thoughts")
Order: TypeAlias = Literal["relevance", "newest", "oldest"]
_ORDERS: dict[Order, str] = {"relevance": "rank", "newest": "rowid DESC", "oldest": "rowid"}

_TERM = rf"[{CJK}]+|[^\W{CJK}]+"  # compiled by its first use, which takes milliseconds
_RUN = rf"[{CJK}]{{3,}}"
_CODE = rf"_|\d|[a-z][A-Z]|[{CJK}]"
"""Marks of a term that may be a part of a longer one."""
_RANKED = 5_000
"""Matches that FTS5 ranks, which takes 5 ms for 1,000 of them. A word with more matches only narrows the results of
others, as does one in a quarter of a smaller log; of more matches of all words, the newest come first."""
_FEW = 20
"""Matches up to which a word is never common."""
_MOST_TERMS = 16
_MOST_PAIRS = 64
_MOST_READ = 5_000
"""Matches that a search looks at, as a filter may refuse most of them."""
_MOST_TIMED = 200_000
"""Events of a range of time that are read for its first and last row."""
_EDGE = 1_000
_SHORTEST_PART = 3
_AROUND = 70
_STOP_WORDS = (
    "a an and are as at be but by can did do does for from had has have how i if in into is it its me my of on or our "
    "so that the their them then there these they this to was we were what when where which who why will with you your "
    "about also am any been being could he her hers him his just she should some us very whom whose would "
    "der die das und ist in zu den von mit für auf ein eine"
)
_STOP = frozenset(_STOP_WORDS.split())


@dataclass(frozen=True, slots=True)
class SearchFilter:
    """The events that a search may return."""

    scopes: frozenset[Scope] = frozenset({"messages", "results", "notes"})
    since: float | None = None
    """Seconds since 1970: no event before. A note has the time of the last event that it is about."""
    until: float | None = None
    """The same: no event from then on."""
    conversation: str = ""
    """The only conversation; all if empty."""
    target: str = ""
    """The only target; all if empty."""
    without: str = ""
    """A conversation that is left out."""
    person: str | None = None
    """The only person, with an empty name for the owner; all if None."""
    delegated: bool = True
    """Whether conversations that worked for another one are searched."""
    kinds: frozenset[str] = frozenset()
    """The only kinds of events; all of the scopes if empty."""
    order: Order = "relevance"


@dataclass(frozen=True, slots=True)
class SearchHit:
    """An event, or a note, that matches a search."""

    conversation: str
    title: str
    number: int
    """Of the event; of a note, that of the last event that it is about."""
    at: float
    kind: Kind
    snippet: str
    """The words around the match, on one line."""


@dataclass(frozen=True, slots=True)
class _Row:
    table: str
    seq: int
    conversation: str
    number: int
    at: float
    kind: Kind
    data: str


def search(base: sqlite3.Connection, text: str, limit: int, wanted: SearchFilter) -> list[SearchHit]:
    """Return the best ``limit`` matches, those with every word first."""
    terms = _split_terms(text)
    if not terms:
        return []
    searcher = _Searcher(base, wanted)
    rows = list(islice(searcher.find(terms), limit))
    if wanted.order != "relevance":
        rows.sort(key=lambda row: row.at, reverse=wanted.order == "newest")
    marks = [*terms, *searcher.pairs]
    return [_to_hit(base, row, marks) for row in rows]


def select(
    base: sqlite3.Connection, keys: Sequence[tuple[str, int]], text: str, wanted: SearchFilter
) -> list[SearchHit]:
    """Return those of these events, by conversation and number, that a search may return, in the same order."""
    searcher = _Searcher(base, wanted)
    rows = [row for key in keys if (row := searcher.read_event(key)) is not None]
    return [_to_hit(base, row, _split_terms(text)) for row in rows]


def _split_terms(text: str) -> list[str]:
    """Return the words of a query without those that say little, unless it has no others."""
    words = list(dict.fromkeys(match.group() for match in re.finditer(_TERM, text)))
    telling = [word for word in words if word.lower() not in _STOP] or words
    return telling[:_MOST_TERMS]


def _quote(term: str) -> str:
    """Return FTS5's string of a word, so that none is taken for an operator."""
    return f'"{space_letters(term.lower()).strip()}"'


def _split_pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)]


class _Searcher:
    """One search; it returns no event twice."""

    def __init__(self, base: sqlite3.Connection, wanted: SearchFilter) -> None:
        self._base = base
        self._wanted = wanted
        self._seen: set[int] = set()
        self._allowed: dict[str, bool] = {}
        self._bounds = self._find_bounds()
        self.pairs: list[str] = []
        """Pairs of letters that were searched in place of longer runs."""

    def find(self, terms: Sequence[str]) -> Iterator[_Row]:
        """Yield the matches with all words, then those with some of the rarer ones."""
        tables = self._list_tables()
        every = " AND ".join(map(_quote, terms))
        yield from self._merge([self._match(table, every) for table in tables])
        if "words" in tables and self._may_be_parts(terms):
            yield from self._match_parts([term.lower() for term in terms])
        parts = self._split_runs(tables, terms)
        if len(parts) > 1 and (self._wanted.order == "relevance" or not self._seen):
            yield from self._merge([self._match(table, self._rare(table, parts)) for table in tables])

    def _split_runs(self, tables: Sequence[str], terms: Sequence[str]) -> list[str]:
        """Return the terms, with pairs of letters in place of each Chinese, Japanese or Korean run that is nowhere."""
        parts: list[str] = []
        for term in terms:
            pairs = _split_pairs(term) if re.fullmatch(_RUN, term) else []
            if any(self._count(table, _quote(term), 1) for table in tables):
                pairs = []
            self.pairs += pairs
            parts += pairs or [term]
        return list(dict.fromkeys(parts))[:_MOST_PAIRS]

    def read_event(self, key: tuple[str, int]) -> _Row | None:
        """Return an event if the filter accepts it."""
        query = "SELECT seq, conversation, number, at, kind, data FROM events WHERE conversation = ? AND number = ?"
        found = self._base.execute(query, key).fetchone()
        row = _Row("words", *found) if found else None
        return row if row is not None and self._accepts(row) else None

    def _list_tables(self) -> list[str]:
        scopes = self._wanted.scopes
        tables = ["words"] if scopes & {"messages", "results"} else []
        tables += ["note_words"] if "notes" in scopes else []
        tables += ["thoughts"] if "thoughts" in scopes else []
        known = {name for (name,) in self._base.execute("SELECT name FROM sqlite_schema").fetchall()}
        return [table for table in tables if table in known]

    def _merge(self, found: Sequence[Iterator[_Row]]) -> Iterator[_Row]:
        """Yield the matches of several tables by their ranks, which cannot be compared otherwise."""
        for rows in zip_longest(*found):
            yield from (row for row in rows if row is not None)

    def _rare(self, table: str, terms: Sequence[str]) -> str:
        """Return the query for some of the words: the rarest first, while few events have one of them."""
        (last,) = self._base.execute("SELECT max(seq) FROM events").fetchone()
        most = max(min(_RANKED, (last or 0) // 4), _FEW)
        chosen: list[str] = []
        left = _RANKED
        for count, term in sorted((self._count(table, _quote(term), most + 1), term) for term in terms):
            left -= count
            if count > most or left < 0:
                break
            chosen += [_quote(term)] if count else []
        return " OR ".join(chosen)

    def _may_be_parts(self, terms: Sequence[str]) -> bool:
        """Whether a term looks like code, or is not a word of the log, so that it may be a part of one."""
        return any(re.search(_CODE, term) or not self._count("words", _quote(term), 1) for term in terms)

    def _match_parts(self, terms: Sequence[str]) -> Iterator[_Row]:
        """Yield the events that contain all terms of three or more letters as parts of their text."""
        parts = [term for term in terms if len(term) >= _SHORTEST_PART]
        known = self._base.execute("SELECT 1 FROM sqlite_schema WHERE name = 'fragments'").fetchone()
        if not parts or known is None:
            return
        grams = dict.fromkeys(part[at : at + 3] for part in parts for at in range(len(part) - 2))
        for row in self._match("fragments", " AND ".join(f'"{gram}"' for gram in grams)):
            text = read_fragments(row.kind, json.loads(row.data)).lower()
            if all(part in text for part in parts):
                yield row
            else:
                self._seen.discard(row.seq)

    def _match(self, table: str, query: str) -> Iterator[_Row]:
        if not query:
            return
        order = _ORDERS[self._wanted.order]
        if order == "rank" and (table == "fragments" or self._count(table, query, _RANKED + 1) > _RANKED):
            order = "rowid DESC"  # fragments have no frequencies, so that all ranks are alike
        bounds = self._find_note_bounds() if table == "note_words" else self._bounds
        between = f"AND rowid BETWEEN {bounds[0]} AND {bounds[1]}" if bounds else ""
        statement = f"SELECT rowid FROM {table} WHERE {table} MATCH ? {between} ORDER BY {order} LIMIT ?"  # noqa: S608  our own names and numbers
        with guard_table(table):
            seqs = [seq for (seq,) in self._base.execute(statement, (query, _MOST_READ)).fetchall()]
        for seq in seqs:
            if seq not in self._seen and (row := self._read(table, seq)) is not None and self._accepts(row):
                self._seen.add(seq)
                yield row

    def _count(self, table: str, query: str, most: int) -> int:
        """Return how many events match, up to ``most``."""
        statement = f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {table} MATCH ? LIMIT ?)"  # noqa: S608  one of our own
        with guard_table(table):
            (count,) = self._base.execute(statement, (query, most)).fetchone()
        return int(count)

    def _find_bounds(self) -> tuple[int, int] | None:
        """Return the first and last row of the conversation or the range of time, outside of which no event is.

        A range of more than ``_MOST_TIMED`` events has the rows of its earliest and latest ones: there, events that
        were recorded while the clock was wrong may be left out. In a smaller one, clocks may go back.
        """
        if self._wanted.conversation:
            return self._read_bounds("WHERE conversation = ?", (self._wanted.conversation,))
        since, until = self._wanted.since, self._wanted.until
        if since is None and until is None:
            return None
        span = (float("-inf") if since is None else since, float("inf") if until is None else until)
        where = "WHERE at >= ? AND at < ?"
        many = f"SELECT count(*) FROM (SELECT 1 FROM events {where} LIMIT ?)"  # noqa: S608  our own conditions
        if self._base.execute(many, (*span, _MOST_TIMED + 1)).fetchone()[0] <= _MOST_TIMED:
            return self._read_bounds(where, span)
        first = self._read_bounds(f"{where} ORDER BY at LIMIT {_EDGE}", span)
        last = self._read_bounds(f"{where} ORDER BY at DESC LIMIT {_EDGE}", span)
        return min(first[0], last[0]), max(first[1], last[1])

    def _find_note_bounds(self) -> tuple[int, int] | None:
        """Return the row of the latest note of the only conversation, which a note is not within the rows of."""
        if not self._wanted.conversation:
            return None
        note = queries.read_note(self._base, self._wanted.conversation)
        where = "WHERE conversation = ? AND number = ?"
        return (0, 0) if note is None else self._read_bounds(where, (note.conversation, note.number))

    def _read_bounds(self, condition: str, values: Sequence[object]) -> tuple[int, int]:
        statement = f"SELECT min(seq), max(seq) FROM (SELECT seq FROM events {condition})"  # noqa: S608  our own conditions
        first, last = self._base.execute(statement, values).fetchone()
        return (first, last) if first is not None else (0, 0)

    def _read(self, table: str, seq: int) -> _Row | None:
        found = self._base.execute(
            "SELECT conversation, number, at, kind, data FROM events WHERE seq = ?", (seq,)
        ).fetchone()
        if found is None:
            return None
        row = _Row(table, seq, *found)
        if row.kind != "note":
            return row
        data: dict[str, Any] = json.loads(row.data)
        latest = queries.read_note(self._base, str(data["conversation"]))
        if latest is None or latest.number != row.number:
            return None  # a later note replaced it
        return _Row(table, seq, str(data["conversation"]), int(data["upto"]), float(data["last"]), "note", row.data)

    def _accepts(self, row: _Row) -> bool:
        wanted = self._wanted
        if wanted.kinds and row.kind not in wanted.kinds:
            return False
        if _scope_of(row) not in wanted.scopes:
            return False
        if wanted.since is not None and row.at < wanted.since:
            return False
        if wanted.until is not None and row.at >= wanted.until:
            return False
        if row.conversation not in self._allowed:
            self._allowed[row.conversation] = self._allows(row.conversation)
        return self._allowed[row.conversation]

    def _allows(self, conversation: str) -> bool:
        wanted = self._wanted
        if conversation == wanted.without or wanted.conversation not in ("", conversation):
            return False
        start = queries.read_start(self._base, conversation)
        if wanted.person is not None and start.person != wanted.person:
            return False
        return wanted.target in ("", start.target) and (wanted.delegated or not start.parent)


def _scope_of(row: _Row) -> Scope:
    if row.table == "thoughts":
        return "thoughts"
    return "notes" if row.kind == "note" else "results" if row.kind == "result" else "messages"


def _to_hit(base: sqlite3.Connection, row: _Row, terms: Sequence[str]) -> SearchHit:
    fields = json.loads(row.data)
    text = read_reasoning(fields) if row.table == "thoughts" else read_text(row.kind, fields)
    snippet = _snippet(text, [term.lower() for term in terms])
    title = queries.read_title(base, row.conversation)
    return SearchHit(row.conversation, title, row.number, row.at, row.kind, snippet)


def _snippet(text: str, words: Sequence[str]) -> str:
    low = text.lower()
    places = [place for word in words if (place := low.find(word)) >= 0]
    start = max(min(places, default=0) - _AROUND, 0)
    end = start + 2 * _AROUND
    line = " ".join(text[start:end].split())
    line = "".join(letter if letter.isprintable() else "\ufffd" for letter in line)
    return ("…" if start else "") + line + ("…" if end < len(text) else "")
