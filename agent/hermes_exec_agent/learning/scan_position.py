"""How far the requests of the log were searched for tasks without an outcome, so that a large log is searched once.

The position is kept in the log's database. Without it, as in a log that was repaired, the search begins again.
"""

from __future__ import annotations

import contextlib
import sqlite3

_TABLE = "CREATE TABLE IF NOT EXISTS outcomes_searched (seq INTEGER NOT NULL) STRICT"
_THERE = "SELECT 1 FROM sqlite_schema WHERE name = 'outcomes_searched'"
_INSERT = "INSERT INTO outcomes_searched SELECT ? WHERE NOT EXISTS (SELECT 1 FROM outcomes_searched)"
_STEP = 1_000
"""Events after which the position is worth a write."""


def read_position(base: sqlite3.Connection) -> int:
    """Return the position of the last event before which no task lacks an outcome."""
    if base.execute(_THERE).fetchone() is None:
        return 0
    return int(base.execute("SELECT coalesce(max(seq), 0) FROM outcomes_searched").fetchone()[0])


def keep_position(base: sqlite3.Connection, position: int) -> None:
    """Keep a position, if it is far enough after the one before; a log that cannot be written is searched again."""
    if position < read_position(base) + _STEP:
        return
    with contextlib.suppress(sqlite3.OperationalError), base:
        base.execute("BEGIN IMMEDIATE")
        base.execute(_TABLE)
        base.execute("DELETE FROM outcomes_searched WHERE seq < ?", (position,))
        base.execute(_INSERT, (position,))


def forget_position(base: sqlite3.Connection) -> None:
    """Remove the position, so that all requests are searched again."""
    base.execute("DROP TABLE IF EXISTS outcomes_searched")
