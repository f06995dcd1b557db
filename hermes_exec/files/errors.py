"""The errors of file operations: TransferError, which also is the built-in error that its errno stands for.

So ``except FileNotFoundError`` works as it does for a file of one's own.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import ProtocolError, TransferError
from hermes_exec.guest.files.tree_writer import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Mapping

_SAFE = "nothing was changed"
_LONGEST = 300
"""Characters of what the place says that are shown."""


class PathError(TransferError):
    """A file operation failed; ``filename`` is the path, ``errno`` the number of the side that failed."""

    def __init__(self, what: str, *, path: str, code: int = 0, remedy: str = "", state: str = _SAFE) -> None:
        super().__init__(what, code=code, remedy=remedy, state=state)
        self.filename = path

    def __str__(self) -> str:
        """The one line, without what OSError would make of errno and filename."""
        return str(self.args[0])


class PathMissing(PathError, FileNotFoundError):
    """There is no such file or folder."""


class PathDenied(PathError, PermissionError):
    """The user there may not do that."""


class PathExists(PathError, FileExistsError):
    """Something has that name."""


class PathIsFolder(PathError, IsADirectoryError):
    """It is a folder, and a file was meant."""


class PathNotFolder(PathError, NotADirectoryError):
    """It is no folder, and one was meant."""


_BY_ERRNO: dict[int, type[PathError]] = {
    errno.ENOENT: PathMissing,
    errno.EACCES: PathDenied,
    errno.EPERM: PathDenied,
    errno.EEXIST: PathExists,
    errno.EISDIR: PathIsFolder,
    errno.ENOTDIR: PathNotFolder,
}
_REMEDIES = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some of the quota there",
    errno.ENOTEMPTY: "recursive=True",
    errno.ELOOP: "a path without a link in it: a link in the way is never followed",
}


def path_error(what: str, path: str, code: int, reason: str, *, state: str = _SAFE, remedy: str = "") -> PathError:
    """The error for ``what`` (such as ``cannot read``) at ``path``."""
    kind = _BY_ERRNO.get(code, PathError)
    line = f"{what} {path}: {reason}"
    return kind(line, path=path, code=code, remedy=remedy or _REMEDIES.get(code, ""), state=state)


def local_path_error(what: str, path: str, error: OSError, *, state: str = _SAFE) -> PathError:
    """The same for a failure of this side."""
    return path_error(what, path, error.errno or 0, f"{error.strerror or error} (on this side)", state=state)


def raise_for_answer(answer: Mapping[str, Any], what: str, path: str, *, state: str = _SAFE) -> None:
    """Raise what a failed answer stands for; nothing when it did not fail."""
    if "error" not in answer:
        return
    kind, message, code = answer["error"], answer.get("message"), answer.get("errno", 0)
    where = answer.get("path") or os.fsencode(path)
    if not isinstance(message, str) or not isinstance(code, int) or not isinstance(where, bytes):
        raise ProtocolError("the guest's answer makes no sense")
    if kind == "os":
        if where.rpartition(b"/")[2].startswith(TEMPORARY):  # ours, which says nothing to anybody
            where = os.fsencode(path)
        raise path_error(what, os.fsdecode(where), code, message[:_LONGEST], state=state)
    if kind == "refused":
        raise path_error(what, path, errno.EBADMSG, message[:_LONGEST], state=state, remedy="the same again")
    raise ProtocolError(f"the guest did not understand: {message}")
