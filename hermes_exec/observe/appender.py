"""Append lines to a file that several processes share, and start a new file when it is full."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from typing import TYPE_CHECKING

from hermes_exec.config.paths import make_private_folder

if TYPE_CHECKING:
    from pathlib import Path

LOOK_S = 5.0
"""Seconds after which the path is checked again: the file may have been moved away, or the disk has room again."""


class Appender:
    """Appends to ``path`` (0600), which is opened at the first line; a full file becomes ``path.1``.

    A short line is appended in one piece, even if other processes append too. Safe to use from several threads.
    """

    def __init__(self, path: Path, *, max_bytes: int, keep: int) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._handle = -1
        self._look_at = 0.0
        self._torn = False  # whether the file may end in half a line
        # A descriptor that one thread closes must not be written to by another: its number may be a new file's.
        self._lock = threading.Lock()

    def append(self, line: bytes) -> None:
        """Append ``line``, which ends with a newline.

        Raises:
            OSError: the line was not written, or only a part of it, which is then a line of its own.
        """
        with self._lock:
            now = time.monotonic()
            if now >= self._look_at:
                self._look_at = now + LOOK_S
                self._look()
            # The end includes the lines of other processes; a file that one of them rotated counts as full as well.
            if os.lseek(self._handle, 0, os.SEEK_END) + len(line) > self._max_bytes:
                self._rotate()
            if self._torn:
                line = b"\n" + line
            self._torn = os.write(self._handle, line) != len(line)
            if self._torn:
                raise OSError("only a part of it could be written")

    def close(self) -> None:
        """Close the file. A later line opens it again."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        handle, self._handle = self._handle, -1
        self._look_at = 0.0
        if handle >= 0:
            os.close(handle)

    def _look(self) -> None:
        """Open the file at the path, unless it is open already."""
        if self._is_current():
            return
        look_at = self._look_at
        self._close()
        self._look_at = look_at
        make_private_folder(self.path.parent)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        self._handle = os.open(self.path, flags, 0o600)
        size = os.lseek(self._handle, 0, os.SEEK_END)
        self._torn = size > 0 and os.pread(self._handle, 1, size - 1) != b"\n"

    def _is_current(self) -> bool:
        if self._handle < 0:
            return False
        mine = os.fstat(self._handle)
        try:
            there = self.path.stat(follow_symlinks=False)
        except FileNotFoundError:
            return False
        return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)

    def _rotate(self) -> None:
        lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._is_current():  # else another process was faster
                self._shift()
            self._look()
        finally:
            os.close(lock)

    def _shift(self) -> None:
        if not self._keep:
            self.path.unlink()
            return
        for number in range(self._keep, 0, -1):
            newer = self.path if number == 1 else get_rotated_path(self.path, number - 1)
            if newer.exists():
                newer.replace(get_rotated_path(self.path, number))


def get_rotated_path(path: Path, number: int) -> Path:
    """Return the name of the file that was full ``number`` times ago."""
    return path.with_name(f"{path.name}.{number}")
