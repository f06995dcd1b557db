"""A log of many events, built by SQL: conversations of ten events each, and a note of every tenth conversation."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

from hermes_exec_agent.memory.notes import STREAM
from hermes_exec_agent.runtime.events import EventLog

if TYPE_CHECKING:
    from pathlib import Path

EACH = 10
"""Events of a conversation."""
STEP_S = 3.0
"""Seconds between two events."""
_NUMBERS = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :events)"
_WORDS = " || ' ' || ".join(f"'w' || (n * {prime} % {size})" for prime, size in
                            [(7919, 20011), (104729, 50021), (1299709, 997), (15485863, 9973)])  # fmt: skip
_EVENTS = f"""
{_NUMBERS}
INSERT INTO events (conversation, number, at, kind, data)
SELECT printf('2%09d-c', (n - 1) / {EACH}), (n - 1) % {EACH} + 1, :begun + n * {STEP_S},
    CASE (n - 1) % {EACH} WHEN 0 THEN 'started' WHEN 1 THEN 'user' WHEN 2 THEN 'assistant' WHEN 4 THEN 'result'
        WHEN 9 THEN 'assistant' ELSE 'call' END,
    CASE (n - 1) % {EACH} WHEN 0 THEN '{{"target":"local","model":"m","system":""}}'
        WHEN 3 THEN '{{"id":"1","name":"terminal"}}'
        ELSE '{{"name":"terminal","content":"server ' || {_WORDS} || '","tool_calls":[]}}' END
FROM numbers ORDER BY n
"""
_TEXT = "SELECT seq, json_extract(data, '$.content') FROM events WHERE kind IN ('user', 'assistant', 'result')"
_NOTES = f"""
{_NUMBERS}
INSERT INTO events (conversation, number, at, kind, data)
SELECT '{STREAM}', n, :begun + n * {STEP_S}, 'note', '{{"conversation":"' || printf('2%09d-c', n * 10 - 10) ||
    '","upto":{EACH},"begun":' || (:begun + n) || ',"last":' || (:begun + n) ||
    ',"sentences":[{{"part":"done","text":"server ' || {_WORDS} || '","events":[2]}}],"how":"model"}}'
FROM numbers
"""


def build(path: Path, events: int) -> float:
    """Create a log with about ``events`` events, with its index; return the time of the first event."""
    begun = time.time() - 1.02 * events * STEP_S
    with EventLog(path) as log:
        log.append("1-first", "user", {"content": "the very first request"})
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        base.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -500000; BEGIN")
        base.execute(_EVENTS, {"events": events, "begun": begun})
        base.execute(_NOTES, {"events": events // (EACH * 10), "begun": begun})
        for table in ("words", "fragments"):
            base.execute(f"INSERT INTO {table} (rowid, text) {_TEXT}")
        base.execute(
            "INSERT INTO note_words (rowid, text) SELECT seq, json_extract(data, '$.sentences[0].text') FROM events"
            " WHERE conversation = ?", (STREAM,)
        )  # fmt: skip
        base.execute(
            "INSERT INTO latest_notes SELECT json_extract(data, '$.conversation'), seq FROM events"
            " WHERE conversation = ?", (STREAM,)
        )  # fmt: skip
        base.execute("COMMIT")
    return begun
