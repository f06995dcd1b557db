"""The database file of the log: its path, schema and connection settings."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.config.paths import make_private_folder, to_printable
from hermes_exec.errno_hints import is_disk_full, path_remedy
from hermes_exec.errors import HermesError
from hermes_exec_agent.database_files import check_readable, create_private
from hermes_exec_agent.state_paths import NETWORKED, find_file_system, state_path

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

VARIABLE = "HERMES_EXEC_CONVERSATIONS"
_ELSEWHERE = f"{VARIABLE}=/another/file.sqlite"
_PATIENCE_S = 20.0
"""How long a writer waits for another one."""
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


def conversations_file(environ: Mapping[str, str] | None = None) -> Path:
    """Return the path of the user's log, or of ``HERMES_EXEC_CONVERSATIONS``. It need not exist.

    Raises:
        ConfigError: the variable is not an absolute path.
    """
    return state_path(VARIABLE, "conversations.sqlite", os.environ if environ is None else environ)


def is_shared(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Whether other machines, or another kernel, may share the folder, where SQLite's WAL is not safe.

    WAL needs memory that all its users share (sqlite.org/wal.html), so an unknown file system counts as shared.
    """
    try:
        kind = find_file_system(folder, mounts.read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError:
        return True
    family = kind.partition(".")[0]
    return not kind or kind in {*NETWORKED, "virtiofs", "drvfs"} or family in {"fuse", "fuseblk"}


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
    base.execute("BEGIN")  # one snapshot: another program may be creating the file
    empty = base.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
    (found,) = base.execute("PRAGMA application_id").fetchone()
    (version,) = base.execute("PRAGMA user_version").fetchone()
    base.execute("COMMIT")
    if not empty and (found != APPLICATION or version != 1):
        raise HermesError(
            f"{to_printable(path)}: it is not a log of conversations, or one of a later version",
            remedy=_ELSEWHERE,
        )
    # With WAL a kill loses nothing, and a power failure at most the latest events; the other mode syncs each time.
    safe = is_shared(path.parent)
    _set_journal(base, "DELETE" if safe else "WAL")
    base.execute("PRAGMA trusted_schema = OFF")
    base.execute(f"PRAGMA synchronous = {'FULL' if safe else 'NORMAL'}")
    if empty:
        base.executescript(_SCHEMA)


def _set_journal(base: sqlite3.Connection, mode: str) -> None:
    """Set the file's journal mode; SQLite refuses the change at once while another program reads or writes."""
    give_up = time.monotonic() + _PATIENCE_S
    while True:
        try:
            base.execute(f"PRAGMA journal_mode = {mode}")
        except sqlite3.OperationalError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.02)  # SQLite does not notify when they have finished
        else:
            return


@contextlib.contextmanager
def translate_errors(path: Path) -> Generator[None]:
    """Turn errors of the database into one line."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "fts5" in str(error) or "tokenizer" in str(error):
            raise HermesError(f"this Python's SQLite lacks FTS5: {error}", remedy="another build of Python") from error
        if is_disk_full(path.parent):
            raise _unusable_error(path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))) from error
        remedy = f"look at free space and rights there, or {_ELSEWHERE}"
        raise HermesError(f"{to_printable(path)}: {error}", remedy=remedy) from error
    except OSError as error:
        raise _unusable_error(path, error) from error
    except sqlite3.Error as error:
        remedy = f"move it away, or {_ELSEWHERE}"
        raise HermesError(f"{to_printable(path)}: {error}", remedy=remedy) from error


def _unusable_error(path: Path, error: OSError) -> HermesError:
    return HermesError(
        f"{to_printable(path)}: {error.strerror or error}", remedy=path_remedy(path, error.errno, _ELSEWHERE)
    )
