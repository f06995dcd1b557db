"""The files of SQLite's databases: their connections, journals and errors.

A program must not open and close such a file by itself while it has a connection to it.
A program that closes any descriptor of a file gives up all locks that it holds on it (fcntl(2)). Another program then
takes itself for the only user of the database and removes its write-ahead log, with the latest changes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.config.paths import make_private_folder, to_printable
from hermes_exec.errno_hints import is_disk_full, path_remedy
from hermes_exec.errors import HermesError
from hermes_exec_agent.state_paths import NETWORKED, find_file_system

if TYPE_CHECKING:
    from collections.abc import Generator

_PATIENCE_S = 20.0
"""How long a writer waits for another one."""


@dataclass(frozen=True, slots=True)
class DatabaseKind:
    """A kind of database of this project."""

    description: str
    """What the file is, for messages."""
    application: int
    """The number in the file's header that marks the kind."""
    schema: str
    """The statements that create it, in one transaction; they set the number, and ``user_version`` to the version."""
    variable: str
    """The environment variable with the path of another file."""
    survives_power_failure: bool = False
    """Whether each change is on the disk before the next statement, also with WAL."""
    upgrades: tuple[str, ...] = ()
    """The statements that turn a file of version 1 into one of version 2, and so on, each without a transaction."""

    @property
    def version(self) -> int:
        """The version of the files that this program writes."""
        return len(self.upgrades) + 1


def create_private(path: Path) -> None:
    """Create an empty file for this user alone; an existing one stays as it is, and is not opened.

    Raises:
        OSError: it cannot be created.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def check_readable(path: Path) -> None:
    """Check that this user may read a database, whose errors do not name the cause.

    Raises:
        OSError: it does not exist, or may not be read.
    """
    path.stat()
    if not os.access(path, os.R_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def read_header(path: Path) -> bytes:
    """Return the first 100 bytes of a database. Its descriptor stays open until the program ends.

    Raises:
        OSError: it cannot be read.
    """
    found = path.stat()
    return os.pread(_open_for_good(found.st_dev, found.st_ino, path), 100, 0)


@cache
def _open_for_good(device: int, inode: int, path: Path) -> int:  # noqa: ARG001  the key of the cache
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


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


def connect_database(path: Path, kind: DatabaseKind, *, make: bool) -> sqlite3.Connection:
    """Open a database; ``make`` creates it for this user alone if it is missing.

    Raises:
        HermesError: it is another kind of file.
        OSError, sqlite3.Error: it cannot be opened; see `translate_database_errors`.
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
        _prepare(base, path, kind)
    except BaseException:
        base.close()
        raise
    return base


def _prepare(base: sqlite3.Connection, path: Path, kind: DatabaseKind) -> None:
    base.execute("BEGIN")  # one snapshot: another program may be creating the file
    empty = base.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
    (found,) = base.execute("PRAGMA application_id").fetchone()
    (version,) = base.execute("PRAGMA user_version").fetchone()
    base.execute("COMMIT")
    if not empty and (found != kind.application or not 1 <= version <= kind.version):
        raise HermesError(
            f"{to_printable(path)}: it is not {kind.description}, or one of a later version",
            remedy=_elsewhere(kind.variable),
        )
    # With WAL a kill loses nothing, and a power failure at most the latest changes; the other mode syncs each time.
    safe = is_shared(path.parent)
    _set_journal(base, "DELETE" if safe else "WAL")
    base.execute("PRAGMA trusted_schema = OFF")
    base.execute(f"PRAGMA synchronous = {'FULL' if safe or kind.survives_power_failure else 'NORMAL'}")
    if empty:
        base.executescript(kind.schema)
    elif version < kind.version:
        _upgrade(base, kind)


def _upgrade(base: sqlite3.Connection, kind: DatabaseKind) -> None:
    """Bring a file to the version of this program, unless another program just did."""
    base.execute("BEGIN IMMEDIATE")
    try:
        (version,) = base.execute("PRAGMA user_version").fetchone()
        for number, script in enumerate(kind.upgrades[version - 1 :], version + 1):
            for statement in script.split(";\n"):
                base.execute(statement)
            base.execute(f"PRAGMA user_version = {number}")
        base.execute("COMMIT")
    except BaseException:
        if base.in_transaction:
            base.execute("ROLLBACK")
        raise


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
def translate_database_errors(path: Path, variable: str) -> Generator[None]:
    """Turn errors of a database into one line; ``variable`` has the path of another file."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise translate_database_error(error, path, variable) from error


def translate_database_error(error: sqlite3.Error | OSError, path: Path, variable: str) -> HermesError:
    """Return an error of a database in one line; ``variable`` has the path of another file."""
    if isinstance(error, OSError):
        return _unusable_error(path, error, variable)
    if not isinstance(error, sqlite3.OperationalError):
        return HermesError(f"{to_printable(path)}: {error}", remedy=f"move it away, or {_elsewhere(variable)}")
    if "fts5" in str(error) or "tokenizer" in str(error):
        return HermesError(f"this Python's SQLite lacks FTS5: {error}", remedy="another build of Python")
    if is_disk_full(path.parent):
        return _unusable_error(path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), variable)
    remedy = f"look at free space and rights there, or {_elsewhere(variable)}"
    return HermesError(f"{to_printable(path)}: {error}", remedy=remedy)


def _unusable_error(path: Path, error: OSError, variable: str) -> HermesError:
    return HermesError(
        f"{to_printable(path)}: {error.strerror or error}", remedy=path_remedy(path, error.errno, _elsewhere(variable))
    )


def _elsewhere(variable: str) -> str:
    return f"{variable}=/another/file.sqlite"
