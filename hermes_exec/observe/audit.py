"""The audit: a record of every command, one JSON object a line, appended and never changed.

Each command has two lines, ``start`` and ``end``, so that a command whose orchestrator died is recorded too. A record
that cannot be written is counted and reported once, and never blocks the command.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from json.encoder import encode_basestring_ascii as quoted
from typing import TYPE_CHECKING, ClassVar

from hermes_exec.observe.appender import Appender
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
