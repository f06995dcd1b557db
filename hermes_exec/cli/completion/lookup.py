"""Look values up for a completion within 300 ms, or else take those of the last time.

A lookup runs in a child process, which continues in the background when it is late and writes its values to a cache,
so that the next TAB has them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.config.paths import read_regular, state_folder, write_private
from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Values = list[tuple[str, str]]
    """Values with a description each."""

LIMIT_S = 0.3
"""Seconds that a person waits for a lookup."""
_CHILD_LIMIT_S = 20
"""Seconds after which a lookup in the background is ended."""
_STALE_S = 3600.0
"""Age up to which values of an earlier lookup are better than none."""
_MOST = 2000
"""Values that are kept."""


def look_up(name: str, fresh_s: float, find: Callable[[], Values], *, limit_s: float = LIMIT_S) -> Values:
    """Return the values that ``find`` returns, or those that it returned less than ``fresh_s`` ago.

    If it does not end within ``limit_s``, the values of an earlier lookup are returned, or none. ``name`` identifies
    the lookup. Errors of ``find`` count as no values.
    """
    path = _cache_file(name)
    age, known = _read(path)
    if age <= fresh_s:
        return known
    found = _find_in_child(path, find, limit_s)
    if found is not None:
        return found
    return known if age <= _STALE_S else []


def _cache_file(name: str) -> Path:
    digest = hashlib.sha256(name.encode(errors="replace")).hexdigest()
    return state_folder(os.environ) / "completion" / f"{digest[:32]}.json"


def _read(path: Path) -> tuple[float, Values]:
    """Return the age of cached values and the values; an infinite age if there are none."""
    try:
        data: Any = json.loads(read_regular(path))
        age = max(0.0, time.time() - path.stat().st_mtime)
    except (OSError, ValueError, HermesError):
        return float("inf"), []
    return age, _check(data)


def _check(data: object) -> Values:
    """Return the pairs of printable texts in ``data``, which a damaged cache or a child wrote."""
    values: Values = []
    for each in cast("list[object]", data) if isinstance(data, list) else []:
        pair = cast("list[object]", each) if isinstance(each, list) else []
        if len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], str) and pair[0].isprintable():
            values.append((pair[0], pair[1] if pair[1].isprintable() else ""))
    return values[:_MOST]


def _find_in_child(path: Path, find: Callable[[], Values], limit_s: float) -> Values | None:
    """Run ``find`` in a child; None if it is not done in time, or another process does the same lookup."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _run_child(path, find, writing)
    os.close(writing)
    received = b""
    deadline = time.monotonic() + limit_s
    try:
        while (left := deadline - time.monotonic()) > 0 and select.select([reading], [], [], left)[0]:
            part = os.read(reading, 1 << 20)
            if not part:
                return _check(json.loads(received)) if received else None
            received += part
    except ValueError:
        return None
    finally:
        os.close(reading)
    return None


def _run_child(path: Path, find: Callable[[], Values], writing: int) -> None:
    """Look up, answer, write the cache, and end the process without returning."""
    with contextlib.suppress(BaseException):
        os.setsid()  # no terminal, so nothing can ask for a passphrase
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_CHILD_LIMIT_S)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)  # the shell waits until the output of all processes is closed
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path.parent / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        at = int(path.stem[:8], 16)
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)  # one at a time for each name
        data = json.dumps(find()[:_MOST]).encode()
        with contextlib.suppress(OSError):
            write_private(path, data)
        _remove_old(path.parent)
        view = memoryview(data)
        while view:
            view = view[os.write(writing, view) :]
    os._exit(0)


def _remove_old(folder: Path) -> None:
    """Remove cached values that are too old to be used."""
    oldest = time.time() - _STALE_S
    for path in folder.glob("*.json"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()
