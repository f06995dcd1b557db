"""The database of the gateway: its path, schema and connection. A commit is on the disk when it returns."""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING

from hermes_exec_agent.database_files import DatabaseKind, connect_database, translate_database_errors
from hermes_exec_agent.frontends.gateway import edits, positions
from hermes_exec_agent.state_paths import state_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

VARIABLE = "HERMES_EXEC_GATEWAY"
APPLICATION = 0x68784757
_SCHEMA = f"""
BEGIN IMMEDIATE;
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = 1;
CREATE TABLE IF NOT EXISTS persons (
    name TEXT PRIMARY KEY,
    role TEXT NOT NULL CHECK (role IN ('owner', 'guest')),
    conversation TEXT NOT NULL DEFAULT '',
    model TEXT NOT NULL DEFAULT '',
    target TEXT NOT NULL DEFAULT '',
    platform TEXT NOT NULL DEFAULT '',
    account TEXT NOT NULL DEFAULT '',
    chat TEXT NOT NULL DEFAULT '',
    added REAL NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS identities (
    platform TEXT NOT NULL,
    account TEXT NOT NULL,
    sender TEXT NOT NULL,
    person TEXT NOT NULL REFERENCES persons (name),
    added REAL NOT NULL,
    PRIMARY KEY (platform, account, sender)
) STRICT;
CREATE TABLE IF NOT EXISTS codes (
    code TEXT PRIMARY KEY,
    platform TEXT NOT NULL,
    account TEXT NOT NULL,
    sender TEXT NOT NULL,
    chat TEXT NOT NULL,
    until REAL NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS wrong_codes (at REAL NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS groups (
    platform TEXT NOT NULL,
    account TEXT NOT NULL,
    chat TEXT NOT NULL,
    person TEXT NOT NULL,
    PRIMARY KEY (platform, account, chat)
) STRICT;
CREATE TABLE IF NOT EXISTS inbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    platform TEXT NOT NULL,
    account TEXT NOT NULL,
    chat TEXT NOT NULL,
    message TEXT NOT NULL,
    person TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('request', 'ordered', 'immediate', 'refused')),
    text TEXT NOT NULL,
    is_group INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'done')),
    conversation TEXT NOT NULL DEFAULT '',
    after INTEGER NOT NULL DEFAULT 0,
    at REAL NOT NULL,
    UNIQUE (platform, account, chat, message)
) STRICT;
CREATE INDEX IF NOT EXISTS inbox_open ON inbox (person, seq) WHERE state != 'done';
CREATE INDEX IF NOT EXISTS inbox_recent ON inbox (person, at);
CREATE TABLE IF NOT EXISTS outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    batch INTEGER NOT NULL,
    part INTEGER NOT NULL DEFAULT 0,
    origin TEXT UNIQUE,
    person TEXT NOT NULL,
    platform TEXT NOT NULL,
    account TEXT NOT NULL,
    chat TEXT NOT NULL,
    text TEXT NOT NULL,
    choices TEXT NOT NULL DEFAULT '[]',
    is_cut INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'sending', 'sent', 'failed', 'unknown')),
    receipt TEXT NOT NULL DEFAULT '',
    error TEXT NOT NULL DEFAULT '',
    attempts INTEGER NOT NULL DEFAULT 0,
    due REAL NOT NULL DEFAULT 0,
    announced INTEGER,
    again INTEGER,
    at REAL NOT NULL,
    changed REAL NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS outbox_pending ON outbox (platform, account, chat, batch, part) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS outbox_open ON outbox (state, person) WHERE state IN ('sending', 'unknown');
CREATE TABLE IF NOT EXISTS platforms (
    platform TEXT NOT NULL,
    account TEXT NOT NULL,
    state TEXT NOT NULL,
    error TEXT NOT NULL DEFAULT '',
    since REAL NOT NULL,
    PRIMARY KEY (platform, account)
) STRICT;
COMMIT;
"""
_COLUMNS = {
    "outbox": {
        "key": "TEXT NOT NULL DEFAULT ''",
        "doubt": "REAL",
        "is_draft": "INTEGER NOT NULL DEFAULT 0",
        "is_file": "INTEGER NOT NULL DEFAULT 0",
        "revision": "INTEGER NOT NULL DEFAULT 0",
        "shown": "INTEGER NOT NULL DEFAULT 0",
    },
    "platforms": {"last_error": "TEXT NOT NULL DEFAULT ''", "last_error_at": "REAL NOT NULL DEFAULT 0"},
}
"""Columns that were added to the first version; a database of that version gets them when it is opened."""
_ADDED = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS files (
    id INTEGER PRIMARY KEY,
    inbox INTEGER,
    outbox INTEGER,
    name TEXT NOT NULL,
    kind TEXT NOT NULL DEFAULT '',
    size INTEGER NOT NULL DEFAULT 0,
    error TEXT NOT NULL DEFAULT '',
    content BLOB
) STRICT;
CREATE INDEX IF NOT EXISTS files_in ON files (inbox) WHERE inbox IS NOT NULL;
CREATE INDEX IF NOT EXISTS files_out ON files (outbox) WHERE outbox IS NOT NULL;
CREATE INDEX IF NOT EXISTS outbox_edits ON outbox (platform, account, chat) WHERE state = 'sent' AND shown < revision;
CREATE TRIGGER IF NOT EXISTS files_of_done AFTER UPDATE OF state ON inbox WHEN NEW.state = 'done'
BEGIN DELETE FROM files WHERE inbox = NEW.seq; END;
CREATE TRIGGER IF NOT EXISTS files_of_sent AFTER UPDATE OF state ON outbox WHEN NEW.state IN ('sent', 'failed')
BEGIN DELETE FROM files WHERE outbox = NEW.id; END;
CREATE TRIGGER IF NOT EXISTS files_of_pruned AFTER DELETE ON outbox
BEGIN DELETE FROM files WHERE outbox = OLD.id; END;
COMMIT;
"""
_INDEXES = """
CREATE INDEX IF NOT EXISTS outbox_batch ON outbox (batch, part);
CREATE INDEX IF NOT EXISTS outbox_announced ON outbox (announced) WHERE announced IS NOT NULL;
CREATE INDEX IF NOT EXISTS outbox_unknown ON outbox (platform, account, chat) WHERE state = 'unknown';"""
"""Without these, each piece would cost a scan of all that were sent in 30 days."""
KIND = DatabaseKind("a database of the gateway", APPLICATION, _SCHEMA, VARIABLE, survives_power_failure=True)
_QUESTIONS = """
DROP TABLE IF EXISTS questions;
CREATE TABLE questions (
    id TEXT PRIMARY KEY,
    person TEXT NOT NULL,
    platform TEXT NOT NULL,
    conversation TEXT NOT NULL,
    tool TEXT NOT NULL,
    summary TEXT NOT NULL,
    choices TEXT,
    asked REAL NOT NULL,
    until REAL NOT NULL,
    answer TEXT NOT NULL DEFAULT '',
    outcome TEXT NOT NULL DEFAULT ''
) STRICT;"""
"""``choices``: of a question with a text as the answer, as JSON; ``until``: in seconds since the machine started;
``answer``: of another program; ``outcome``: how it ended. No row outlasts the gateway that asks."""


def gateway_file(environ: Mapping[str, str] | None = None) -> Path:
    """Return the path of the user's database, or of ``HERMES_EXEC_GATEWAY``. It need not exist.

    Raises:
        ConfigError: the variable is not an absolute path.
    """
    return state_path(VARIABLE, "gateway.sqlite", os.environ if environ is None else environ)


def connect(path: Path, *, make: bool = True) -> sqlite3.Connection:
    """Open the database; ``make`` creates it for this user alone if it is missing.

    Raises:
        HermesError: it is another kind of file.
        OSError, sqlite3.Error: it cannot be opened; see `translate_errors`.
    """
    base = connect_database(path, KIND, make=make)
    base.row_factory = sqlite3.Row
    base.execute("PRAGMA foreign_keys = ON")
    try:
        _add_columns(base)
    except BaseException:
        base.close()
        raise
    return base


def _add_columns(base: sqlite3.Connection) -> None:
    """Add what the first version lacks; the files of a message or piece leave with it."""
    if base.execute("SELECT 1 FROM sqlite_schema WHERE name = 'outbox_unknown'").fetchone():
        return
    base.execute("BEGIN IMMEDIATE")
    for table, columns in _COLUMNS.items():
        known = {row["name"] for row in base.execute(f"PRAGMA table_info({table})")}
        for column, definition in columns.items():
            if column not in known:
                base.execute(f"ALTER TABLE {table} ADD COLUMN {column} {definition}")
    base.execute("COMMIT")
    base.executescript(positions.SCHEMA + _ADDED + edits.SCHEMA + _QUESTIONS + _INDEXES)


def translate_errors(path: Path) -> AbstractContextManager[None]:
    """Turn errors of the database into one line."""
    return translate_database_errors(path, VARIABLE)
