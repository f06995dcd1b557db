"""The outcomes of the versions of skills as a table of the log's database, which the events can always replace.

Counting all outcomes takes seconds in a log of a million events. The table has one row for each task and skill, with
the current outcome; each call adds the events that were recorded since the last one. It is filled again if the last
event that was added is missing, or is another one, as in a log whose last events were deleted.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, TypeAlias

from hermes_exec_agent.learning.outcomes import CURRENT
from hermes_exec_agent.learning.scan_position import forget_position
from hermes_exec_agent.runtime.events.storage import connect, log_exists, translate_errors

if TYPE_CHECKING:
    from hermes_exec_agent.runtime.events.log import EventLog

Row: TypeAlias = "tuple[str, int, str, float, float, float]"
"""A skill, its version, a model, and the numbers of tasks that succeeded, failed, and have no evidence."""
_BATCH = 20_000
"""Events of one transaction, which other programs that write wait for."""
_CREATE = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS version_outcomes (
    conversation TEXT NOT NULL, request INTEGER NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL,
    model TEXT NOT NULL, result TEXT NOT NULL, has_evidence INTEGER NOT NULL,
    PRIMARY KEY (conversation, request, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS version_outcomes_by_name ON version_outcomes (name, version, model, result);
CREATE TABLE IF NOT EXISTS version_outcomes_upto (number INTEGER NOT NULL, seq INTEGER, at REAL) STRICT;
INSERT INTO version_outcomes_upto SELECT 0, NULL, NULL WHERE NOT EXISTS (SELECT 1 FROM version_outcomes_upto);
COMMIT;
"""
_DROP = "BEGIN IMMEDIATE; DROP TABLE IF EXISTS version_outcomes; DROP TABLE IF EXISTS version_outcomes_upto; COMMIT;"
_END = "SELECT number FROM version_outcomes_upto"
_IS_GONE = """
SELECT 1 FROM version_outcomes_upto
WHERE seq IS NOT NULL AND NOT EXISTS (SELECT 1 FROM events JOIN version_outcomes_upto USING (seq, at))
"""
_MOVE_END = """
UPDATE version_outcomes_upto SET number = ?1, (seq, at) = (
    SELECT seq, at FROM events
    WHERE conversation = 'outcomes' AND kind = 'outcome' AND number <= ?1 ORDER BY number DESC LIMIT 1
)
"""
_LAST = "SELECT coalesce(max(number), 0) FROM events WHERE conversation = 'outcomes' AND kind = 'outcome'"
_ADD = """
INSERT INTO version_outcomes SELECT
    json_extract(data, '$.conversation'), json_extract(data, '$.request'), json_extract(value, '$.name'),
    max(json_extract(value, '$.version')), json_extract(data, '$.model'), json_extract(data, '$.result'),
    json_extract(data, '$.evidence.kind') <> 'none'
FROM events, json_each(data, '$.skills')
WHERE conversation = 'outcomes' AND kind = 'outcome' AND number > ? AND number <= ?
GROUP BY number, json_extract(value, '$.name') ORDER BY number
ON CONFLICT DO UPDATE SET version = excluded.version, model = excluded.model, result = excluded.result,
    has_evidence = excluded.has_evidence WHERE excluded.has_evidence OR NOT version_outcomes.has_evidence
"""
_COUNTS = "name, version, model, total(result = 'succeeded'), total(result = 'failed'), total(result = 'unknown')"
_GROUPS = "GROUP BY name, version, model ORDER BY name, version, model"
_FROM_TABLE = f"SELECT {_COUNTS} FROM version_outcomes WHERE :name = '' OR name = :name {_GROUPS}"  # noqa: S608  constants
_FROM_EVENTS = f"""
SELECT {_COUNTS} FROM (
    SELECT json_extract(value, '$.name') AS name, max(json_extract(value, '$.version')) AS version,
        json_extract(data, '$.model') AS model, json_extract(data, '$.result') AS result
    FROM ({CURRENT}), json_each(data, '$.skills') WHERE :name = '' OR json_extract(value, '$.name') = :name
    GROUP BY json_extract(data, '$.task'), json_extract(value, '$.name')
) {_GROUPS}
"""  # noqa: S608  constants


def count_outcomes(log: EventLog, name: str = "") -> list[Row]:
    """Return the counts of the versions of a skill, or of all skills, by name, version and model.

    Raises:
        HermesError: the log cannot be read.
    """
    if not log_exists(log.path):
        return []
    with translate_errors(log.path), closing(connect(log.path, make=False)) as base:
        try:
            _catch_up(base)
            return base.execute(_FROM_TABLE, {"name": name}).fetchall()
        except (sqlite3.OperationalError, sqlite3.IntegrityError):  # no space, a read-only file, or a damaged record
            return count_from_events(base, name)


def count_from_events(base: sqlite3.Connection, name: str = "") -> list[Row]:
    """Return the same from the events alone."""
    return base.execute(_FROM_EVENTS, {"name": name}).fetchall()


def forget_table(log: EventLog) -> None:
    """Remove the table, and the position up to which tasks have outcomes; both are found again from the events.

    Raises:
        HermesError: the log cannot be written.
    """
    if log_exists(log.path):
        with translate_errors(log.path), closing(connect(log.path, make=False)) as base:
            base.executescript(_DROP)
            forget_position(base)


def _catch_up(base: sqlite3.Connection) -> None:
    """Add the outcomes that the table lacks, some of them in each transaction, so that a kill loses little."""
    if base.execute("SELECT 1 FROM sqlite_schema WHERE name = 'version_outcomes_upto'").fetchone() is None:
        base.executescript(_CREATE)
    elif base.execute(_IS_GONE).fetchone():
        base.executescript(_DROP)
        base.executescript(_CREATE)
    while base.execute(_END).fetchone() < base.execute(_LAST).fetchone():
        base.execute("BEGIN IMMEDIATE")
        try:
            ((end,), (last,)) = base.execute(_END).fetchone(), base.execute(_LAST).fetchone()
            upto = min(end + _BATCH, last)
            base.execute(_ADD, (end, upto))
            base.execute(_MOVE_END, (upto,))
            base.execute("COMMIT")
        except BaseException:
            if base.in_transaction:
                base.execute("ROLLBACK")
            raise
