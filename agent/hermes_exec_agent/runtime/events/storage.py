"""The database file of the log: its path, schema and connection settings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hermes_exec_agent.database_files import (
    DatabaseKind,
    connect_database,
    translate_database_error,
    translate_database_errors,
)
from hermes_exec_agent.state_paths import state_path

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from hermes_exec.errors import HermesError

VARIABLE = "HERMES_EXEC_CONVERSATIONS"
APPLICATION = 0x68784556
_SCHEMA = f"""
BEGIN IMMEDIATE;
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = 1;
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY,
    conversation TEXT NOT NULL,
    number INTEGER NOT NULL CHECK (number > 0),
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    UNIQUE (conversation, number)
) STRICT;
CREATE INDEX IF NOT EXISTS events_by_kind ON events (conversation, kind, number);
CREATE TRIGGER IF NOT EXISTS nothing_changes BEFORE UPDATE ON events
    BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;
CREATE TRIGGER IF NOT EXISTS nothing_goes BEFORE DELETE ON events
    BEGIN SELECT RAISE(ABORT, 'events are never removed'); END;
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(text, content='', tokenize="porter unicode61 remove_diacritics 2");
COMMIT;
"""
_KIND = DatabaseKind("a log of conversations", APPLICATION, _SCHEMA, VARIABLE)


def conversations_file(environ: Mapping[str, str] | None = None) -> Path:
    """Return the path of the user's log, or of ``HERMES_EXEC_CONVERSATIONS``. It need not exist.

    Raises:
        ConfigError: the variable is not an absolute path.
    """
    return state_path(VARIABLE, "conversations.sqlite", os.environ if environ is None else environ)


def log_exists(path: Path) -> bool:
    """Whether the log exists.

    Raises:
        OSError: its folder cannot be read, or is not a folder.
    """
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True


def find_inode(path: Path) -> int | None:
    """Return the number of the file, by which a replaced one is noticed; None if there is none."""
    try:
        return path.stat().st_ino
    except OSError:
        return None


def connect(path: Path, *, make: bool) -> sqlite3.Connection:
    """Open the database; ``make`` creates it for this user alone if it is missing.

    Raises:
        HermesError: it is another kind of file.
        OSError, sqlite3.Error: it cannot be opened; see `translate_errors`.
    """
    return connect_database(path, _KIND, make=make)


def translate_errors(path: Path) -> AbstractContextManager[None]:
    """Return a context manager that turns errors of the database into one line."""
    return translate_database_errors(path, VARIABLE)


def translate_error(error: sqlite3.Error | OSError, path: Path) -> HermesError:
    """Return an error of the database in one line."""
    return translate_database_error(error, path, VARIABLE)
