"""Which interpreter skills run with."""

from __future__ import annotations

import hashlib
import os
from functools import cache

from hermes_exec.errors import PlaceUnavailable


def interpreter(python: str) -> str:
    """The path that ``python`` leads to, and the hash of its bytes: another one is another proof.

    Raises:
        PlaceUnavailable: there is none.
    """
    path = os.path.realpath(python)
    try:
        seen = os.stat(path)  # noqa: PTH116  beside the hash of the same file
        return f"{path} sha256:{_hashed(path, seen.st_ino, seen.st_size, seen.st_mtime_ns)}"
    except OSError as error:
        raise PlaceUnavailable(f"{python}: {error.strerror}", remedy="install Python there") from error


@cache
def _hashed(path: str, *_seen: int) -> str:
    with open(path, "rb") as file:  # noqa: PTH123  one descriptor, one digest
        return hashlib.file_digest(file, "sha256").hexdigest()
