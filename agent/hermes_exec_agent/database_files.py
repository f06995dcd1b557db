"""The files of SQLite's databases, which a program must not open and close by itself while it has a connection.

A program that closes any descriptor of a file gives up all locks that it holds on it (fcntl(2)). Another program then
takes itself for the only user of the database and removes its write-ahead log, with the latest changes.
"""

from __future__ import annotations

import contextlib
import errno
import os
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


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
