"""The file of the scheduler: its path, its tables, and its transactions.

All tickers of all machines that share the file agree by its transactions alone. The file system decides on its
journal, as for the log of conversations: a write-ahead log on a local one, a rollback journal on one that several
machines share.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from hermes_exec_agent.database_files import DatabaseKind, connect_database, translate_database_errors
from hermes_exec_agent.state_paths import state_path

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

VARIABLE = "HERMES_EXEC_CRON"
_APPLICATION = 0x6878634A
_DELIVERIES = """
CREATE TABLE IF NOT EXISTS deliveries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    slot INTEGER NOT NULL REFERENCES slots (id),
    address TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'sending', 'delivered', 'failed', 'suppressed', 'unknown')),
    subject TEXT NOT NULL,
    body TEXT NOT NULL,
    key TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    due REAL NOT NULL,
    error TEXT NOT NULL DEFAULT '',
    owner TEXT NOT NULL DEFAULT '',
    lease REAL NOT NULL DEFAULT 0,
    ended REAL
) STRICT;
CREATE INDEX IF NOT EXISTS deliveries_of_slots ON deliveries (slot);
CREATE INDEX IF NOT EXISTS open_deliveries ON deliveries (due) WHERE state IN ('pending', 'sending');
"""
_SCHEMA = f"""
BEGIN IMMEDIATE;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = 2;
CREATE TABLE IF NOT EXISTS jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    spec TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'active', 'paused', 'ended', 'removed')),
    reason TEXT NOT NULL DEFAULT '',
    author TEXT NOT NULL DEFAULT '',
    origin TEXT NOT NULL DEFAULT '{{}}',
    anchor INTEGER NOT NULL,
    era INTEGER NOT NULL DEFAULT 0,
    cursor INTEGER NOT NULL,
    next INTEGER,
    late REAL NOT NULL,
    failures INTEGER NOT NULL DEFAULT 0,
    revision INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS names_of_jobs ON jobs (name) WHERE state <> 'removed';
CREATE INDEX IF NOT EXISTS due_jobs ON jobs (next) WHERE state = 'active';
CREATE TABLE IF NOT EXISTS slots (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job INTEGER NOT NULL REFERENCES jobs (id),
    era INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    last INTEGER NOT NULL CHECK (last >= slot),
    count INTEGER NOT NULL DEFAULT 1 CHECK (count > 0),
    cause TEXT NOT NULL CHECK (cause IN ('schedule', 'catch-up', 'person', 'clock')),
    state TEXT NOT NULL
        CHECK (state IN ('claimed', 'running', 'completed', 'failed', 'skipped', 'missed', 'unknown')),
    reason TEXT NOT NULL DEFAULT '',
    note TEXT NOT NULL DEFAULT '',
    owner TEXT NOT NULL DEFAULT '',
    lease REAL NOT NULL DEFAULT 0,
    stop TEXT NOT NULL DEFAULT '',
    recorded REAL NOT NULL,
    began REAL,
    ended REAL,
    exit_code INTEGER,
    conversation TEXT NOT NULL DEFAULT '',
    cost REAL,
    text TEXT
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS one_row_for_a_slot ON slots (job, era, slot) WHERE cause = 'schedule';
CREATE INDEX IF NOT EXISTS slots_of_jobs ON slots (job, id);
CREATE INDEX IF NOT EXISTS open_slots ON slots (job, id) WHERE state IN ('claimed', 'running');
CREATE TRIGGER IF NOT EXISTS ends_stay BEFORE UPDATE OF state ON slots
    WHEN OLD.state IN ('completed', 'failed', 'skipped', 'missed')
        OR (OLD.state = 'unknown' AND NEW.state NOT IN ('completed', 'failed'))
        OR (OLD.state = 'running' AND NEW.state = 'claimed')
    BEGIN SELECT RAISE(ABORT, 'the end of a slot stays as it was recorded'); END;
CREATE TRIGGER IF NOT EXISTS slots_stay BEFORE DELETE ON slots
    BEGIN SELECT RAISE(ABORT, 'slots are never removed'); END;{_DELIVERIES}
CREATE TABLE IF NOT EXISTS looks (host TEXT PRIMARY KEY, at REAL NOT NULL) STRICT;
COMMIT;
"""
_TO_VERSION_2 = f"""
DROP INDEX deliveries_of_slots;
DROP INDEX open_deliveries;
ALTER TABLE deliveries RENAME TO deliveries_1;
{_DELIVERIES.strip()}
INSERT INTO deliveries SELECT * FROM deliveries_1;
DROP TABLE deliveries_1
""".strip()  # noqa: S608  our names
"""The outcome of a delivery may be unknown."""
_KIND = DatabaseKind(
    "a file of the scheduler",
    _APPLICATION,
    _SCHEMA,
    VARIABLE,
    survives_power_failure=True,
    upgrades=(_TO_VERSION_2,),
)


def scheduler_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the user's file, or of ``HERMES_EXEC_CRON``. It need not exist.

    Raises:
        ConfigError: the variable is not an absolute path.
    """
    return state_path(VARIABLE, "cron.sqlite", environ)


class CronStore:
    """The file of the scheduler. Threads may share an object, whose transactions run one after another."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._base: sqlite3.Connection | None = None

    @classmethod
    def of_user(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Return the user's file; see `scheduler_file`."""
        return cls(scheduler_file(environ))

    @property
    def exists(self) -> bool:
        """Whether there is a file; one is created by the first change."""
        return self._base is not None or self.path.exists()

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """Change the file: all statements of the block have an effect, or none.

        Raises:
            HermesError: the file cannot be changed.
        """
        with self._lock, translate_database_errors(self.path, VARIABLE):
            base = self._open(make=True)
            base.execute("BEGIN IMMEDIATE")
            try:
                yield base
                base.execute("COMMIT")
            except BaseException:
                if base.in_transaction:
                    base.execute("ROLLBACK")
                raise

    @contextmanager
    def snapshot(self) -> Generator[sqlite3.Connection | None]:
        """Read the file in one state; None if there is no file.

        Raises:
            HermesError: the file cannot be read.
        """
        with self._lock, translate_database_errors(self.path, VARIABLE):
            if not self.exists:
                yield None
                return
            base = self._open(make=False)
            base.execute("BEGIN")
            try:
                yield base
            finally:
                base.execute("COMMIT")

    def _open(self, *, make: bool) -> sqlite3.Connection:
        if self._base is None:
            base = connect_database(self.path, _KIND, make=make)
            base.row_factory = sqlite3.Row
            self._base = base
        return self._base

    def close(self) -> None:
        """Close the file. A later call opens it again."""
        with self._lock:
            base, self._base = self._base, None
            if base is not None:
                base.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
