"""Folders of this machine that are shared with a skill: requests, grants, mounts and permission checks.

A skill requests a folder by a name of its own and declares whether it writes to it; the grant says which folder that
is. It is mounted below /app/folders. In the probe sandbox of a proof, and while a skill is judged, an empty tmpfs
folder takes its place, so no folder of the machine is used for a trial run.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import PlaceUnavailable, Refused, UsageError
from hermes_exec_backends.sandbox import Bind
from hermes_exec_policies.load import override_policy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hermes_exec_backends.sandbox import Confinement
    from hermes_exec_policies.model import Policy

FOLDERS_ROOT = "/app/folders"
"""The parent folder of shared folders in a sandbox."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_WRITABLE = ":rw"
_EXAMPLE = "--folder invoices=/srv/invoices, or --folder archive=/srv/archive:rw to allow writing"
_NEVER = ("/proc", "/sys", "/dev")


@dataclass(frozen=True, slots=True)
class SharedFolder:
    """A folder that a skill requests, or that is granted to it."""

    name: str
    source: str = ""
    """Its path on this machine; empty in a request."""
    writable: bool = False

    @property
    def target(self) -> str:
        """Its path in the sandbox."""
        return f"{FOLDERS_ROOT}/{self.name}"

    @property
    def use(self) -> str:
        """``read`` or ``read and write``."""
        return "read and write" if self.writable else "read"

    @classmethod
    def parse_request(cls, word: str) -> SharedFolder:
        """Parse the request of a manifest: ``NAME``, or ``NAME:rw`` if the skill writes to it.

        Raises:
            ValueError: the name is invalid.
        """
        name = word.removesuffix(_WRITABLE)
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{word!r} names no folder: use lower-case letters, digits and '-', then ':rw' to write to it"
            )
        return cls(name, writable=name != word)

    @classmethod
    def parse_grant(cls, word: str) -> SharedFolder:
        """Parse the grant of a person: ``NAME=DIR``, or ``NAME=DIR:rw``.

        Raises:
            UsageError: the path is not absolute, has a ``..``, or is never shared.
        """
        name, _, path = word.partition("=")
        source = path.removesuffix(_WRITABLE)
        parts = source.split("/")
        if not _NAME.fullmatch(name):
            raise UsageError(f"--folder {word!r}: {name!r} names no folder", remedy=_EXAMPLE)
        if not source.startswith("/") or {"", ".", ".."} & {*parts[1:]} or not source.isprintable():
            raise UsageError(f"--folder {word!r}: {source!r} is not an absolute path without '..'", remedy=_EXAMPLE)
        if f"/{parts[1]}" in _NEVER:
            raise UsageError(f"--folder {word!r}: {', '.join(_NEVER)} are never shared", remedy=_EXAMPLE)
        return cls(name, source, writable=source != path)

    def __str__(self) -> str:
        """The grant in the form that ``parse_grant`` reads."""
        return f"{self.name}={self.source}{_WRITABLE if self.writable else ''}"


def with_folders(policy: Policy, folders: Iterable[SharedFolder]) -> Policy:
    """The policy extended by these granted folders; the same object if there are none."""
    read, write = ([each.target for each in folders if each.writable is kind] for kind in (False, True))
    if not (read or write):
        return policy
    files = {"read": [*policy.files.read, *read], "write": [*policy.files.write, *write]}
    return override_policy(policy, {"files": files})


def bind_folders(specification: Confinement, folders: Iterable[SharedFolder]) -> Confinement:
    """The specification with these folders mounted, noexec, in place of the empty ones."""
    given = {each.target: each for each in folders}
    binds = [
        Bind(source=each.source, target=target, writable=each.writable, executable=False)
        for target, each in given.items()
    ]
    empty = [each for each in specification.tmpfs if each.target not in given]
    return replace(specification, binds=(*specification.binds, *binds), tmpfs=tuple(empty))


def shared_paths(policy: Policy) -> tuple[list[str], list[str]]:
    """The paths of a policy's shared folders: the read-only ones, and the writable ones."""
    files = policy.files
    read, write = (
        [path for path in paths if path.startswith(f"{FOLDERS_ROOT}/")] for paths in (files.read, files.write)
    )
    return read, write


def identify_folder(folder: SharedFolder, user: int | None = None) -> tuple[int, int]:
    """Return device and inode of a folder; ``user`` is the sandbox's user, -1 if it is chosen later.

    Raises:
        Refused: the folder does not exist, is a link or below one, or ``user`` lacks the permission.
    """
    where, real = to_printable(folder.source), os.path.realpath(folder.source)
    try:
        found = os.lstat(real)
    except OSError as error:
        raise Refused(f"the folder {where} cannot be shared: {error.strerror}") from None
    if real != folder.source:
        raise Refused(f"the folder {where} is a link or below one", remedy=f"grant {to_printable(real)}")
    if not stat.S_ISDIR(found.st_mode):
        raise Refused(f"{where} is not a folder", remedy="grant its parent folder")
    if not os.access(real, os.R_OK | os.X_OK | (os.W_OK if folder.writable else 0)):
        raise Refused(f"you lack the permission to {folder.use} the folder {where} yourself")
    if user not in {None, os.geteuid()}:
        _check_access(folder, found.st_mode)
    return found.st_dev, found.st_ino


def _check_access(folder: SharedFolder, mode: int) -> None:
    """Check that a user who owns nothing and is in no group has access, which a bind mount needs."""
    path = Path(folder.source)
    closed = next((above for above in reversed(path.parents) if not above.stat().st_mode & stat.S_IXOTH), None)
    needed = stat.S_IROTH | stat.S_IXOTH | (stat.S_IWOTH if folder.writable else 0)
    if closed is not None or mode & needed != needed:
        remedy = f"chmod o+rx{'w' * folder.writable} {path}" if closed is None else f"chmod o+x {closed}"
        raise Refused(
            f"the sandbox's user, a user of its own, lacks the permission to {folder.use} the folder {path}",
            remedy=remedy,
        )


def verify_shared(folder: SharedFolder, which: tuple[int, int], pid: int) -> None:
    """Check that the sandbox of ``pid``, which has not begun, mounts the identified folder and not a replacement.

    Raises:
        Refused: it mounts another folder.
        PlaceUnavailable: the mount cannot be inspected.
    """
    try:
        found = Path(f"/proc/{pid}/root{folder.target}").stat()
    except OSError as error:
        raise PlaceUnavailable(f"{folder.target} of a sandbox cannot be inspected: {error.strerror}") from error
    if (found.st_dev, found.st_ino) != which:
        raise Refused(f"the folder {to_printable(folder.source)} was replaced while it was shared")
