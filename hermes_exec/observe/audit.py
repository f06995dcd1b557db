"""The audit: a record of every command, one JSON object a line, appended and never changed.

Each command has two lines, ``start`` and ``end``, so that a command whose orchestrator died is recorded too. A record
that cannot be written is counted and reported once, and never blocks the command.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import threading
import time
from json.encoder import encode_basestring_ascii as quoted
from typing import TYPE_CHECKING, ClassVar

from hermes_exec.config.paths import make_private_folder
from hermes_exec.observe.redact import Redactor

if TYPE_CHECKING:
    from pathlib import Path


LARGEST = 4096
"""Bytes of a record at most."""
COMMAND = 2048
"""Bytes of it that a command may take, as JSON; likewise the constants below."""
CWD = 768
TARGET = 384
ERROR = 512
WORD = 128
"""Bytes of an id, a session or a kind."""
MAX_BYTES = 16 << 20
KEEP = 4

_log = logging.getLogger("hermes_exec.audit")
_NOTHING = Redactor()

LOOK_S = 5.0
"""Seconds after which the path is checked again: the file may have been moved away, or the disk has room again."""


class Audit:
    """Appends to the audit at ``path``, which is created for this user alone at the first record.

    All audits at one path share one open file in a process, whichever secrets each of them redacts. Safe
    to use from several threads. Ids are unique within one object.
    """

    def __init__(
        self,
        path: Path,
        redactor: Redactor = _NOTHING,
        *,
        max_bytes: int = MAX_BYTES,
        keep: int = KEEP,
    ) -> None:
        self._sink = _Sink.at(path, max_bytes, keep)
        self._redactor = redactor
        self._run = f"{os.getpid()}-{os.urandom(4).hex()}"  # distinguishes equal ids of two orchestrators

    @property
    def dropped(self) -> int:
        """The number of records that this process could not write to the file."""
        return self._sink.dropped

    def record_start(self, id: str, target: str, session: str, kind: str, command: str, cwd: str) -> None:
        """Record that a command is sent.

        A command too long for a record keeps its beginning, its length in characters and its SHA-256 (of
        the redacted text as UTF-8: a hash of the secret itself would help to guess it).
        """
        redactor = self._redactor
        if redactor:
            # One search instead of three; no path, target or secret has a NUL in it.
            command, cwd, target = redactor.redact(f"{command}\0{cwd}\0{target}").rsplit("\0", 2)
        text = quoted(command)
        if len(text) > COMMAND:
            digest = hashlib.sha256(command.encode("utf-8", "surrogatepass")).hexdigest()
            text = f'{_cut(command, COMMAND)},"command_length":{len(command)},"command_sha256":"{digest}"'
        self._sink.append(
            f'{{"event":"start","at":{time.time():.3f},"run":"{self._run}","id":{_cut(id, WORD)}'
            f',"target":{_cut(target, TARGET)},"session":{_cut(session, WORD)},"kind":{_cut(kind, WORD)}'
            f',"cwd":{_cut(cwd, CWD)},"command":{text}}}\n'
        )

    def record_end(  # one positional call on the hot path, in the order of a Result
        self,
        id: str,
        exit_code: int | None,
        signal: int | None,
        timed_out: bool,  # noqa: FBT001  the order of the record is the order of the arguments
        duration_s: float,
        stdout_bytes: int,
        stderr_bytes: int,
        error: str = "",
    ) -> None:
        """Record the end of a command. ``error`` is why it has neither exit code nor signal, where that is known."""
        why = f',"error":{_cut(self._redactor.redact(error), ERROR)}' if error else ""
        self._sink.append(
            f'{{"event":"end","at":{time.time():.3f},"run":"{self._run}","id":{_cut(id, WORD)}'
            f',"exit_code":{"null" if exit_code is None else exit_code}'
            f',"signal":{"null" if signal is None else signal},"timed_out":{"true" if timed_out else "false"}'
            f',"duration_s":{duration_s:.6f},"stdout_bytes":{stdout_bytes},"stderr_bytes":{stderr_bytes}{why}}}\n'
        )

    def close(self) -> None:
        """Close the file, also for audits that share it. A later record opens it again."""
        self._sink.close()


class _Sink:
    """The one open file of a path, and the count of records that could not be written."""

    _all: ClassVar[dict[tuple[Path, int, int], _Sink]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, appender: Appender) -> None:
        self._appender = appender
        self.dropped = 0
        self.close = appender.close

    @classmethod
    def at(cls, path: Path, max_bytes: int, keep: int) -> _Sink:
        """Return the sink for this path, shared so that a thousand terminals do not hold a thousand descriptors."""
        with cls._lock:
            sink = cls._all.get((path, max_bytes, keep))
            if sink is None:
                sink = cls._all[path, max_bytes, keep] = cls(Appender(path, max_bytes=max_bytes, keep=keep))
            return sink

    def append(self, line: str) -> None:
        """Append a line, or count it as dropped; never raise."""
        try:
            self._appender.append(line.encode("ascii"))
        except OSError as error:
            self.dropped += 1
            if self.dropped == 1:
                _log.warning("the audit %s misses commands: %s", self._appender.path, error.strerror or error)


def _cut(text: str, most: int) -> str:
    """Return ``text`` as JSON of at most ``most`` bytes; text that was cut ends with an ellipsis."""
    whole = quoted(text)
    if len(whole) <= most:
        return whole
    room = most - len(quoted("…"))
    kept = text[:room]
    while len(shorter := quoted(kept)) - 2 > room:
        kept = kept[: len(kept) * room // len(shorter)]
    return quoted(f"{kept}…")


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
