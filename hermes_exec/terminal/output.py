"""Buffer the output of a command: all of it while it is short, else its head, its tail and a spool file."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.guest.core.wire import STDERR, STDOUT
from hermes_exec.result import Truncation

if TYPE_CHECKING:
    from hermes_exec.transport.protocol import RunningCommand


_PREFIX = "hermes-exec-output-"
_STARTING_S = 60.0
"""Seconds in which a new folder may not be locked yet."""


class SpoolFolder:
    """The folder for the full outputs of truncated results; created on first use, removed with its terminal.

    It is locked while its process lives. The folder of a killed process is removed by the next process that creates
    one.
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._lock = -1
        self._owner = os.getpid()
        self._count = 0

    def new_path(self) -> Path:
        """Return the path of a new spool file."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
            self._lock = _lock_folder(self._folder)
            atexit.register(self.close)
            _sweep(self._folder.parent)
        self._count += 1
        return self._folder / f"{self._count}.out"

    def close(self) -> None:
        """Remove the folder and all spools; a forked child leaves those of its parent alone."""
        if self._folder is not None and self._owner == os.getpid():
            atexit.unregister(self.close)
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
            if self._lock >= 0:
                os.close(self._lock)


def _lock_folder(folder: Path) -> int:
    """Lock a folder and return its descriptor, which unlocks it when closed; -1 if another process has the lock."""
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
                lock = _lock_folder(folder)
                if lock >= 0:
                    shutil.rmtree(folder, ignore_errors=True)
                    os.close(lock)


DEFAULT_MAX_OUTPUT = 8 << 20
"""Bytes of each stream that a result keeps by default."""
SPOOL_CAP = 1 << 30
"""The most bytes of a truncated stream that its spool file holds."""
_HEAD = 0.4
"""The share of the kept bytes that comes from the beginning; the end of an output is more informative."""


class OutputBuffer:
    """The output of one stream. Up to ``limit`` bytes are kept; memory use stays below about twice that."""

    __slots__ = ("_cap", "_head", "_limit", "_parts", "_spool", "_spooled", "_spools", "_tail", "total")

    def __init__(self, limit: int, spools: SpoolFolder) -> None:
        self.total = 0
        self._limit = limit
        self._spools = spools
        self._parts: list[bytes] = []
        self._head = b""
        self._tail: bytearray | None = None
        self._spool: tuple[Path, int] | None = None
        self._spooled = 0
        self._cap: int = SPOOL_CAP

    def feed(self, data: bytes) -> None:
        """Append the next bytes."""
        self.total += len(data)
        if self._tail is None:
            self._parts.append(data)
            if self.total > self._limit:
                self._overflow()
        else:
            self._keep_tail(data)
            self._write(data)

    def _overflow(self) -> None:
        whole = b"".join(self._parts)
        self._parts = []
        head = int(self._limit * _HEAD)
        self._head = whole[:head]
        self._tail = bytearray()
        self._keep_tail(whole[head:])
        try:
            path = self._spools.new_path()
            self._spool = (path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except OSError:  # no space or no folder for a file: head and tail are kept
            return
        self._write(whole)

    def _keep_tail(self, data: bytes) -> None:
        size = self._limit - len(self._head)
        tail = self._tail
        if tail is None:
            return
        tail += data[-size:] if size else b""
        if len(tail) > 2 * size:
            del tail[: len(tail) - size]

    def _write(self, data: bytes) -> None:
        if self._spool is None or self._spooled >= self._cap:
            return
        view = memoryview(data)[: self._cap - self._spooled]
        try:
            while view:
                done = os.write(self._spool[1], view)
                self._spooled += done
                view = view[done:]
        except OSError:  # a full disk: the file holds a correct beginning, of `spooled` bytes
            self._cap = self._spooled

    def finish(self) -> tuple[bytes, Truncation | None]:
        """Return the kept bytes, and the truncation if some are missing."""
        if self._tail is None:
            return b"".join(self._parts) if len(self._parts) != 1 else self._parts[0], None
        size = self._limit - len(self._head)
        tail = bytes(self._tail[-size:]) if size else b""
        omitted = self.total - len(self._head) - len(tail)
        path = None
        if self._spool is not None:
            path = self._spool[0]
            os.close(self._spool[1])
            self._spool = None
        mark = f"\n[... {omitted} bytes omitted ...]\n".encode()
        return self._head + mark + tail, Truncation(self.total, omitted, path, self._spooled)


class OutputCollector:
    """A sink that keeps both streams of a command."""

    __slots__ = ("stderr", "stdout")

    def __init__(self, limit: int, spools: SpoolFolder) -> None:
        self.stdout = OutputBuffer(limit, spools)
        self.stderr = OutputBuffer(limit, spools)

    def feed(self, call: RunningCommand, channel: int, data: bytes, /) -> None:
        """Receive bytes, and acknowledge them at once."""
        if channel == STDOUT:
            self.stdout.feed(data)
        elif channel == STDERR:
            self.stderr.feed(data)
        call.acknowledge(channel, len(data))
