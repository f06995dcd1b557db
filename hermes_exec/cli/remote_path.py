"""``TARGET:PATH``: a file or a folder in some place."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from hermes_exec.errors import UsageError

_PATH_BEGINS = re.compile(r":(?=/(?!/)|~|\.{1,2}(?:/|\Z))")


@dataclass(frozen=True, slots=True)
class Spot:
    """A path, and the target of its place; None is this side."""

    target: str | None
    path: str

    def __str__(self) -> str:
        return self.path if self.target is None else f"{self.target}:{self.path}"


def spot(text: str) -> Spot:
    """Read ``TARGET:PATH`` or a path of this side, which is anything without a colon before its first slash.

    A target may have colons itself: the path begins after the last one that is followed by ``/``, ``~``,
    ``./`` or ``../``, else after the last one of all.

    Raises:
        UsageError: it is empty, or names a target and no path.
    """
    if not text:
        raise UsageError("an empty path")
    if ":" not in text.partition("/")[0]:
        return Spot(None, text)
    begins = [match.start() for match in _PATH_BEGINS.finditer(text)]
    at = begins[-1] if begins else text.rfind(":")
    if text[at:].startswith("://"):
        raise UsageError(f"{text!r} names no path", remedy=f"{text}:/path, or {text}:. for its first folder")
    return Spot(text[:at], text[at + 1 :] or ".")


def require_source(source: Spot) -> None:
    """See that a source of this side is there, before a place is opened for it.

    Raises:
        UsageError: there is no such file or folder; nothing was opened.
    """
    if source.target is not None:
        return
    try:
        os.lstat(source.path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(
            f"{source.path}: {error.strerror} (on this side)", remedy="TARGET:PATH, if it is there"
        ) from None


def inside(folder: str, source: str) -> str:
    """Where ``source`` goes in a folder: under its own name; ``SRC/.`` goes there itself."""
    name = own_name(source)
    return folder if name in {"", "."} else f"{folder.rstrip('/')}/{name}"


def own_name(path: str) -> str:
    """The last part of a path: empty for the root, and ``.`` for what a folder holds."""
    return path.rstrip("/").rpartition("/")[2]
