"""Replace a damaged log: it is kept next to the new one, to which all events that can still be read are copied."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import sqlite3
from typing import TYPE_CHECKING

from hermes_exec.config.paths import to_printable
from hermes_exec_agent.database_files import read_header
from hermes_exec_agent.runtime.events import search_index, storage

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

_log = logging.getLogger("hermes_exec.agent")
_DEFAULT_NAME = "conversations.sqlite"
_HEADER = b"SQLite format 3\0"
_UNDECODABLE = "Could not decode to UTF-8"
_ROWS = 200
_GIVE_UP = 20_000
"""Rows in succession that cannot be read."""
_INSERT = "INSERT OR IGNORE INTO events (seq, conversation, number, at, kind, data) VALUES (?, ?, ?, ?, ?, ?)"
_BESIDE = ("-wal", "-shm", "-journal")


def is_damaged(error: sqlite3.DatabaseError, path: Path) -> bool:
    """Whether the error is that of a damaged log; a file that may be another program's is never one."""
    code = getattr(error, "sqlite_errorcode", None)  # an error of this module of Python has none
    if code is None and not str(error).startswith(_UNDECODABLE):
        return False
    if code is not None and code & 0xFF not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return False
    try:
        header = read_header(path)
    except OSError:
        return False
    if header.startswith(_HEADER):
        return int.from_bytes(header[68:72], "big") == storage.APPLICATION
    return path.name == _DEFAULT_NAME


def replace_file(path: Path, inode: int | None) -> None:
    """Keep the file as ``.damaged``, and start a new one with all events that can be read.

    Args:
        path: of the log.
        inode: of the damaged file; if the path has another one meanwhile, nothing is done.

    Raises:
        OSError, sqlite3.Error: the new file cannot be written; the old one is unchanged.
    """
    with _lock(path):
        if inode is not None and storage.find_inode(path) != inode:
            return  # another program did it
        new = path.with_name(f".{path.name}.new")
        for ending in ("", *_BESIDE):
            new.with_name(new.name + ending).unlink(missing_ok=True)
        copied = _copy_events(path, new)
        aside = _find_free(path)
        for ending in ("", *_BESIDE):
            with contextlib.suppress(FileNotFoundError):
                path.with_name(path.name + ending).rename(aside.with_name(aside.name + ending))
        new.rename(path)
    _log.warning(
        "%s was damaged: it is kept as %s, and %d events were copied to a new one",
        to_printable(path), to_printable(aside), copied,
    )  # fmt: skip


@contextlib.contextmanager
def _lock(path: Path) -> Generator[None]:
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _find_free(path: Path) -> Path:
    aside, number = path.with_name(f"{path.name}.damaged"), 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.damaged.{number}")
    return aside


def _copy_events(path: Path, new: Path) -> int:
    copied = 0
    target = storage.connect(new, make=True)
    try:
        target.execute("BEGIN IMMEDIATE")
        for row in _read_rows(path):
            added = target.execute(
                "INSERT OR IGNORE INTO events (seq, conversation, number, at, kind, data) VALUES (?, ?, ?, ?, ?, ?)",
                row,
            )
            copied += added.rowcount
        search_index.prepare(target)
        search_index.reset(target, search_index.TABLES)
        target.execute("COMMIT")
        target.execute("PRAGMA journal_mode = DELETE")  # all of it in one file
    finally:
        target.close()
    return copied


def _read_rows(path: Path) -> Iterator[tuple[object, ...]]:
    """Yield all rows of events that can be read, around those that cannot."""
    try:
        base = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=1, isolation_level=None)
    except sqlite3.Error:
        return
    with contextlib.closing(base):
        seq = misses = 0
        while misses < _GIVE_UP:
            rows, error = _read_some(base, seq, 1 if misses else _ROWS)
            yield from rows
            if rows:
                seq, misses = int(rows[-1][0]), 0
            elif error is None:
                return
            else:
                if error == sqlite3.SQLITE_NOTADB:
                    return
                seq, misses = seq + 1, misses + 1


def _read_some(base: sqlite3.Connection, seq: int, most: int) -> tuple[list[tuple[int, ...]], int | None]:
    """Return rows after ``seq`` up to the first that cannot be read, and the code of the error."""
    rows: list[tuple[int, ...]] = []
    try:
        statement = "SELECT seq, conversation, number, at, kind, data FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
        for row in base.execute(statement, (seq, most)):
            json.loads(row[5])
            rows.append(row)
    except (sqlite3.Error, ValueError, TypeError) as error:
        return rows, getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return rows, None
