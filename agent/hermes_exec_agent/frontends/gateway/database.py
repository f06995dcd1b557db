"""The database of the gateway: its path, schema and connection. A commit is on the disk when it returns."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from typing import TYPE_CHECKING

from hermes_exec.config.paths import make_private_folder, to_printable
from hermes_exec.errors import HermesError
from hermes_exec_agent.database_files import check_readable, create_private
from hermes_exec_agent.runtime.events.storage import is_shared
from hermes_exec_agent.state_paths import state_path

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

VARIABLE = "HERMES_EXEC_GATEWAY"
APPLICATION = 0x68784757
_PATIENCE_S = 20.0
_SCHEMA = f"""
BEGIN IMMEDIATE;
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = 1;
CREATE TABLE persons (
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
CREATE TABLE identities (
    platform TEXT NOT NULL,
    account TEXT NOT NULL,
    sender TEXT NOT NULL,
    person TEXT NOT NULL REFERENCES persons (name),
    added REAL NOT NULL,
    PRIMARY KEY (platform, account, sender)
) STRICT;
CREATE TABLE codes (
    code TEXT PRIMARY KEY,
    platform TEXT NOT NULL,
    account TEXT NOT NULL,
    sender TEXT NOT NULL,
    chat TEXT NOT NULL,
    until REAL NOT NULL
) STRICT;
CREATE TABLE wrong_codes (at REAL NOT NULL) STRICT;
CREATE TABLE groups (
    platform TEXT NOT NULL,
    account TEXT NOT NULL,
    chat TEXT NOT NULL,
    person TEXT NOT NULL,
    PRIMARY KEY (platform, account, chat)
) STRICT;
CREATE TABLE inbox (
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
CREATE INDEX inbox_open ON inbox (person, seq) WHERE state != 'done';
CREATE INDEX inbox_recent ON inbox (person, at);
CREATE TABLE outbox (
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
CREATE INDEX outbox_pending ON outbox (platform, account, chat, batch, part) WHERE state = 'pending';
CREATE INDEX outbox_open ON outbox (state, person) WHERE state IN ('sending', 'unknown');
CREATE TABLE platforms (
    platform TEXT NOT NULL,
    account TEXT NOT NULL,
    state TEXT NOT NULL,
    error TEXT NOT NULL DEFAULT '',
    since REAL NOT NULL,
    PRIMARY KEY (platform, account)
) STRICT;
COMMIT;
"""


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
    if make and not path.exists():
        make_private_folder(path.parent)
        create_private(path)
    check_readable(path)  # SQLite does not report the cause
    base = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=_PATIENCE_S,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        _prepare(base, path)
    except BaseException:
        base.close()
        raise
    return base


def _prepare(base: sqlite3.Connection, path: Path) -> None:
    base.row_factory = sqlite3.Row
    base.execute(f"PRAGMA journal_mode = {'DELETE' if is_shared(path.parent) else 'WAL'}")
    base.execute("PRAGMA synchronous = FULL")  # a message is acknowledged after its commit
    base.execute("PRAGMA foreign_keys = ON")
    base.execute("PRAGMA trusted_schema = OFF")
    base.execute("BEGIN IMMEDIATE")  # another program may be creating it
    (tables,) = base.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    (found,) = base.execute("PRAGMA application_id").fetchone()
    (version,) = base.execute("PRAGMA user_version").fetchone()
    if tables and (found, version) != (APPLICATION, 1):
        base.execute("ROLLBACK")
        raise HermesError(
            f"{to_printable(path)}: it is not a database of the gateway, or one of a later version",
            remedy=f"{VARIABLE}=/another/file.sqlite",
        )
    if not tables:
        for statement in _SCHEMA.split(";")[1:-2]:
            base.execute(statement)
    base.execute("COMMIT")


@contextlib.contextmanager
def translate_errors(path: Path) -> Generator[None]:
    """Turn errors of the database into one line."""
    remedy = f"look at free space and rights there, or {VARIABLE}=/another/file.sqlite"
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise HermesError(f"{to_printable(path)}: {reason}", remedy=remedy) from error
