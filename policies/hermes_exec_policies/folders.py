"""Folders of this machine that a skill was granted: which they are, where they are seen, and whether they may be.

A skill gives a folder a name and says whether it writes to it; which folder that is, says whoever grants it. It is seen
below /app/folders. Where none is given (in the twin of a proof, and while a skill is judged) an empty one in memory is
there instead, so no folder of the machine is ever used to try something out.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.config.paths import shown
from hermes_exec.errors import PlaceUnavailable, Refused, UsageError
from hermes_exec_backends.sandbox import Bind
from hermes_exec_policies.load import overridden

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hermes_exec_backends.sandbox import Confinement
    from hermes_exec_policies.model import Policy

SEEN = "/app/folders"
"""What they are seen below."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_WRITABLE = ":rw"
_EXAMPLE = "--folder invoices=/srv/invoices, or archive=/srv/archive:rw for one that it may write to"
_NEVER = ("/proc", "/sys", "/dev")


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that is asked for, or granted."""

    name: str
    source: str = ""
    """Where it is on this machine; empty while it is only asked for."""
    writable: bool = False

    @property
    def target(self) -> str:
        """Where it is seen."""
        return f"{SEEN}/{self.name}"

    @property
    def use(self) -> str:
        """What is done with it, in words."""
        return "read and write" if self.writable else "read"

    @classmethod
    def asked(cls, word: str) -> Folder:
        """What a manifest says: ``NAME``, or ``NAME:rw`` for one that is written to.

        Raises:
            ValueError: it names none.
        """
        name = word.removesuffix(_WRITABLE)
        if not _NAME.fullmatch(name):
            raise ValueError(f"{word!r} names no folder: small letters, digits and '-', then ':rw' if it is written to")
        return cls(name, writable=name != word)

    @classmethod
    def granted(cls, word: str) -> Folder:
        """What a person says: ``NAME=DIR``, or ``NAME=DIR:rw``.

        Raises:
            UsageError: it is no absolute path without ``..``, or of what is never given.
        """
        name, _, path = word.partition("=")
        source = path.removesuffix(_WRITABLE)
        parts = source.split("/")
        if not _NAME.fullmatch(name):
            raise UsageError(f"--folder {word!r}: {name!r} names no folder", remedy=_EXAMPLE)
        if not source.startswith("/") or {"", ".", ".."} & {*parts[1:]} or not source.isprintable():
            raise UsageError(f"--folder {word!r}: {source!r} is no absolute path without '..'", remedy=_EXAMPLE)
        if f"/{parts[1]}" in _NEVER:
            raise UsageError(f"--folder {word!r}: nothing of {', '.join(_NEVER)} is ever given", remedy=_EXAMPLE)
        return cls(name, source, writable=source != path)

    def __str__(self) -> str:
        """As ``granted`` reads it."""
        return f"{self.name}={self.source}{_WRITABLE if self.writable else ''}"


def with_folders(policy: Policy, folders: Iterable[Folder]) -> Policy:
    """What a policy says for a skill that was granted these folders; itself where there are none."""
    read, write = ([each.target for each in folders if each.writable is kind] for kind in (False, True))
    if not (read or write):
        return policy
    files = {"read": [*policy.files.read, *read], "write": [*policy.files.write, *write]}
    return overridden(policy, {"files": files})


def with_given(specification: Confinement, folders: Iterable[Folder]) -> Confinement:
    """The specification of a sandbox that sees these folders instead of empty ones; nothing is started from them."""
    given = {each.target: each for each in folders}
    binds = [
        Bind(source=each.source, target=target, writable=each.writable, executable=False)
        for target, each in given.items()
    ]
    empty = [each for each in specification.tmpfs if each.target not in given]
    return replace(specification, binds=(*specification.binds, *binds), tmpfs=tuple(empty))


def seen_in(policy: Policy) -> tuple[list[str], list[str]]:
    """Where a policy lets folders of the machine be seen: those that are read, and those that are written to."""
    files = policy.files
    read, write = ([path for path in paths if path.startswith(f"{SEEN}/")] for paths in (files.read, files.write))
    return read, write


def looked_at(folder: Folder, user: int | None = None) -> tuple[int, int]:
    """Which folder it is, as its device and inode; ``user`` is the sandbox's, -1 one that is chosen later.

    Raises:
        Refused: it is not there, is a link or below one, or that user may not have it.
    """
    where, real = shown(folder.source), os.path.realpath(folder.source)
    try:
        found = os.lstat(real)
    except OSError as error:
        raise Refused(f"the folder {where} cannot be given: {error.strerror}") from None
    if real != folder.source:
        raise Refused(f"the folder {where} is a link or below one", remedy=f"grant {shown(real)}")
    if not stat.S_ISDIR(found.st_mode):
        raise Refused(f"{where} is no folder", remedy="grant the folder that it is in")
    if not os.access(real, os.R_OK | os.X_OK | (os.W_OK if folder.writable else 0)):
        raise Refused(f"you may not {folder.use} the folder {where} yourself")
    if user not in {None, os.geteuid()}:
        _check_access(folder, found.st_mode)
    return found.st_dev, found.st_ino


def _check_access(folder: Folder, mode: int) -> None:
    """See that a user who owns nothing and is in no group may have it; only then can it be bound."""
    path = Path(folder.source)
    closed = next((above for above in reversed(path.parents) if not above.stat().st_mode & stat.S_IXOTH), None)
    needed = stat.S_IROTH | stat.S_IXOTH | (stat.S_IWOTH if folder.writable else 0)
    if closed is not None or mode & needed != needed:
        mend = f"chmod o+rx{'w' * folder.writable} {path}" if closed is None else f"chmod o+x {closed}"
        raise Refused(f"the sandbox's user, who is nobody else, may not {folder.use} the folder {path}", remedy=mend)


def see_given(folder: Folder, which: tuple[int, int], pid: int) -> None:
    """See that a sandbox whose ``pid`` has not begun shows the folder that was looked at, and not what took its place.

    Raises:
        Refused: it is another one.
        PlaceUnavailable: nobody can tell.
    """
    try:
        found = Path(f"/proc/{pid}/root{folder.target}").stat()
    except OSError as error:
        raise PlaceUnavailable(f"{folder.target} of a sandbox cannot be looked at: {error.strerror}") from error
    if (found.st_dev, found.st_ino) != which:
        raise Refused(f"the folder {shown(folder.source)} became another one while it was given")
