"""``TARGET:PATH``: the path of a file or folder in a target."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec.errors import UsageError

if TYPE_CHECKING:
    from hermes_exec.terminal.terminal import Terminal

_PATH_BEGINS = re.compile(r":(?=/(?!/)|~|\.{1,2}(?:/|\Z))")


@dataclass(frozen=True, slots=True)
class RemotePath:
    """A path and its target; the target is None for a local path."""

    target: str | None
    path: str

    def __str__(self) -> str:
        return self.path if self.target is None else f"{self.target}:{self.path}"


def parse_path(text: str) -> RemotePath:
    """Parse ``TARGET:PATH``, or a local path, which has no colon before its first slash.

    A target may contain colons: the path begins after the last colon that ``/``, ``~``, ``./`` or ``../`` follows, or
    else after the last colon.

    Raises:
        UsageError: the text is empty, or has a target and no path.
    """
    if not text:
        raise UsageError("the path is empty", remedy="a local path, or TARGET:PATH")
    if ":" not in text.partition("/")[0]:
        return RemotePath(None, text)
    begins = [match.start() for match in _PATH_BEGINS.finditer(text)]
    at = begins[-1] if begins else text.rfind(":")
    if text[at:].startswith("://"):
        raise UsageError(
            f"{text!r} names no path", remedy=f"{text}:/path, or {text}:. for the folder in which the target starts"
        )
    return RemotePath(text[:at], text[at + 1 :] or ".")


def check_source(source: RemotePath) -> None:
    """Check that a local source exists, before a target is opened for it.

    Raises:
        UsageError: there is no such file or folder; nothing was opened.
    """
    if source.target is not None:
        return
    try:
        os.lstat(source.path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(
            f"{source.path}: {error.strerror} (on this machine)", remedy="TARGET:PATH, if it is in a target"
        ) from None


async def expand_home(terminal: Terminal, path: str) -> str:
    """Return a path of a target with the home folder there for ``~`` at its beginning."""
    if path != "~" and not path.startswith("~/"):
        return path
    home = (await terminal.run(["sh", "-c", 'printf %s "$HOME"'], check=True)).stdout
    return os.fsdecode(home) + path[1:]


def join_name(folder: str, source: str) -> str:
    """Return the path of the copy of ``source`` in a folder; the copy of ``SRC/.`` is the folder itself."""
    name = last_name(source)
    return folder if name in {"", "."} else f"{folder.rstrip('/')}/{name}"


def last_name(path: str) -> str:
    """Return the last component of a path: empty for the root, and ``.`` for the content of a folder."""
    return path.rstrip("/").rpartition("/")[2]
