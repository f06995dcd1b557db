"""The files that hold what a result has no room for, and what killed processes left of them."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

_PREFIX = "hermes-exec-output-"
_STARTING_S = 60.0
"""A folder may be as young as that and not be locked yet."""


class Spools:
    """The folder for the full outputs of truncated results; made on first use, gone with its terminal.

    It is locked while its process lives. What a process that was killed left is removed by the next one that needs such
    a folder.
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._lock = -1
        self._owner = os.getpid()
        self._count = 0

    def new(self) -> Path:
        """A path for one more stream."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
            self._lock = _locked(self._folder)
            atexit.register(self.close)
            _sweep(self._folder.parent)
        self._count += 1
        return self._folder / f"{self._count}.out"

    def close(self) -> None:
        """Remove the folder and all spools; a forked child leaves its parent's alone."""
        if self._folder is not None and self._owner == os.getpid():
            atexit.unregister(self.close)
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
            if self._lock >= 0:
                os.close(self._lock)


def _locked(folder: Path) -> int:
    """A descriptor that is locked until it is closed; -1 where somebody has it, or nobody can."""
    fd = -1
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        if fd >= 0:
            os.close(fd)
        return -1
    return fd


def _sweep(base: Path) -> None:
    for folder in base.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            there = folder.lstat()
            if there.st_uid == os.getuid() and time.time() - there.st_mtime > _STARTING_S:
                lock = _locked(folder)
                if lock >= 0:
                    shutil.rmtree(folder, ignore_errors=True)
                    os.close(lock)
