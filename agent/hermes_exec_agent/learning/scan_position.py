"""How far the requests of the log were searched for tasks without an outcome, so that a large log is searched once.

The position is kept in the log's database. Without it, as in a log that was repaired, the search begins again; so it
does if the event at the position is missing, or is another one, as in a log whose last events were deleted.
"""

from __future__ import annotations

import contextlib
import sqlite3

_TABLE = "CREATE TABLE IF NOT EXISTS outcomes_position (seq INTEGER NOT NULL, at REAL NOT NULL) STRICT"
_THERE = "SELECT 1 FROM sqlite_schema WHERE name = 'outcomes_position'"
_READ = "SELECT coalesce(max(seq), 0) FROM outcomes_position JOIN events USING (seq, at)"
_FOUND = "SELECT seq, at FROM events WHERE seq <= ? ORDER BY seq DESC LIMIT 1"
_STEP = 1_000
"""Events after which the position is worth a write."""


def read_position(base: sqlite3.Connection) -> int:
    """Return the position of the last event before which no task lacks an outcome."""
    if base.execute(_THERE).fetchone() is None:
        return 0
    return int(base.execute(_READ).fetchone()[0])


def keep_position(base: sqlite3.Connection, position: int) -> None:
    """Keep a position, if it is far enough after the one before; a log that cannot be written is searched again."""
    if position < read_position(base) + _STEP:
        return
    with contextlib.suppress(sqlite3.OperationalError), base:
        base.execute("BEGIN IMMEDIATE")
        base.execute(_TABLE)
        if position > read_position(base):  # another program may have kept a later one
            base.execute("DELETE FROM outcomes_position")
            base.execute(f"INSERT INTO outcomes_position {_FOUND}", (position,))


def forget_position(base: sqlite3.Connection) -> None:
    """Remove the position, so that all requests are searched again."""
    base.execute("DROP TABLE IF EXISTS outcomes_position")
