"""Search registered skills by words: name, description and SKILL.md, ranked by SQLite's BM25."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError, UsageError

if TYPE_CHECKING:
    from hermes_exec_agent.skills.registry.record import Version
    from hermes_exec_agent.skills.registry.registry import Registry

_TABLE = "CREATE VIRTUAL TABLE skills USING fts5(name, summary, body, tokenize='porter unicode61 remove_diacritics 2')"
_RANKED = """
SELECT name, rank FROM skills WHERE skills MATCH ? AND rank MATCH 'bm25(10.0, 5.0, 1.0)' ORDER BY rank, name LIMIT ?
"""
_WORD = re.compile(r"\w+")
_MOST_WORDS = 64


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A skill that has at least one of the words."""

    name: str
    summary: str
    score: float
    """Higher is better; comparable within one search only."""


def search_skills(registry: Registry, words: str, *, limit: int = 10) -> list[SearchHit]:
    """Return the skills that match any of the words, best first; equal ones by name.

    Archived skills and versions in quarantine are left out.

    Raises:
        UsageError: there is no word.
        Refused: another program changed the registry.
    """
    found = list(dict.fromkeys(each.lower() for each in _WORD.findall(words)))[:_MOST_WORDS]
    if not found:
        raise UsageError("there is no word to search for", remedy="hermes-exec skill search WORDS")
    versions = {
        name: registry.read_version(skill)
        for name, skill in sorted(registry.skills().items())
        if not skill.archived and skill.current not in skill.kept_back
    }
    with closing(sqlite3.connect(":memory:")) as database:
        try:
            database.execute(_TABLE)
        except sqlite3.OperationalError as error:
            raise HermesError(f"this Python's SQLite lacks FTS5: {error}", remedy="another build of Python") from error
        rows = ((name.replace("-", " "), each.summary, read_body(registry, each)) for name, each in versions.items())
        database.executemany("INSERT INTO skills VALUES (?, ?, ?)", rows)
        query = " OR ".join(f'"{word}"' for word in found)
        hits = database.execute(_RANKED, (query, limit)).fetchall()
    names = {name.replace("-", " "): name for name in versions}
    return [SearchHit(names[shown], versions[names[shown]].summary, round(-rank, 6)) for shown, rank in hits]


def read_body(registry: Registry, version: Version) -> str:
    """Return the text of SKILL.md; empty if its bytes are not those that were registered."""
    listed = next((each for each in version.files if each.path == "SKILL.md"), None)
    try:
        data = (registry.tree(version) / "SKILL.md").read_bytes()
    except OSError:
        return ""
    if listed is None or hashlib.sha256(data).hexdigest() != listed.sha256:
        return ""
    return data.decode("utf-8", "replace")
