"""The errors of file operations: each is a TransferError and also the built-in error for its errno.

So ``except FileNotFoundError`` works as it does for a local file.
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
"""Characters of the target's error text that are shown."""


class PathError(TransferError):
    """A file operation failed; ``filename`` is the path, ``errno`` the number of the side that failed."""

    def __init__(self, what: str, *, path: str, code: int = 0, remedy: str = "", state: str = _SAFE) -> None:
        super().__init__(what, code=code, remedy=remedy, state=state)
        self.filename = path

    def __str__(self) -> str:
        """Return the one-line message, without the errno and filename that OSError would add."""
        return str(self.args[0])


class PathMissing(PathError, FileNotFoundError):
    """The file or folder does not exist."""


class PathDenied(PathError, PermissionError):
    """The user in the target has no permission."""


class PathExists(PathError, FileExistsError):
    """The name exists already."""


class PathIsFolder(PathError, IsADirectoryError):
    """The path is a folder where a file is expected."""


class PathNotFolder(PathError, NotADirectoryError):
    """The path is not a folder where one is expected."""


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
    """Return the error for ``what`` (such as ``cannot read``) at ``path``."""
    kind = _BY_ERRNO.get(code, PathError)
    line = f"{what} {path}: {reason}"
    return kind(line, path=path, code=code, remedy=remedy or _REMEDIES.get(code, ""), state=state)


def local_path_error(what: str, path: str, error: OSError, *, state: str = _SAFE) -> PathError:
    """Return the error for a failure on this side."""
    return path_error(what, path, error.errno or 0, f"{error.strerror or error} (on this side)", state=state)


def raise_for_answer(answer: Mapping[str, Any], what: str, path: str, *, state: str = _SAFE) -> None:
    """Raise the error that a failed answer describes; does nothing when it did not fail."""
    if "error" not in answer:
        return
    kind, message, code = answer["error"], answer.get("message"), answer.get("errno", 0)
    where = answer.get("path") or os.fsencode(path)
    if not isinstance(message, str) or not isinstance(code, int) or not isinstance(where, bytes):
        raise ProtocolError("the guest's answer is invalid")
    if kind == "os":
        asked = os.fsencode(path)
        # A temporary name of ours, which the user does not know, or the last name of what was asked for.
        if where.rpartition(b"/")[2].startswith(TEMPORARY) or where == asked.rstrip(b"/").rpartition(b"/")[2]:
            where = asked
        raise path_error(what, os.fsdecode(where), code, message[:_LONGEST], state=state)
    if kind == "refused":
        raise path_error(what, path, errno.EBADMSG, message[:_LONGEST], state=state, remedy="the same again")
    raise ProtocolError(f"the guest did not understand: {message}")
