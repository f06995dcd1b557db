"""The errors of file operations: TransferError, which also is the built-in error that its errno stands for.

So ``except FileNotFoundError`` works as it does for a file of one's own.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import ProtocolError, TransferError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SAFE = "nothing was changed"


class Missing(TransferError, FileNotFoundError):
    """There is no such file or folder."""


class Denied(TransferError, PermissionError):
    """The user there may not do that."""


class AlreadyThere(TransferError, FileExistsError):
    """Something has that name."""


class IsFolder(TransferError, IsADirectoryError):
    """It is a folder, and a file was meant."""


class NoFolder(TransferError, NotADirectoryError):
    """It is no folder, and one was meant."""


_BY_ERRNO: dict[int, type[TransferError]] = {
    errno.ENOENT: Missing,
    errno.EACCES: Denied,
    errno.EPERM: Denied,
    errno.EEXIST: AlreadyThere,
    errno.EISDIR: IsFolder,
    errno.ENOTDIR: NoFolder,
}
_REMEDIES = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some of the quota there",
    errno.ENOTEMPTY: "recursive=True",
    errno.ELOOP: "a path without a link in it: a link in the way is never followed",
}


def failure(what: str, path: str, code: int, reason: str, *, state: str = _SAFE, remedy: str = "") -> TransferError:
    """The error for ``what`` (such as ``cannot read``) at ``path``; ``path`` is kept as its ``filename``."""
    kind = _BY_ERRNO.get(code, TransferError)
    error = kind(f"{what} {path}: {reason}", code=code, remedy=remedy or _REMEDIES.get(code, ""), state=state)
    error.path = path
    return error


def local_failure(what: str, path: str, error: OSError, *, state: str = _SAFE) -> TransferError:
    """The same for a failure of this side."""
    return failure(what, path, error.errno or 0, f"{error.strerror or error} (on this side)", state=state)


def check(answer: Mapping[str, Any], what: str, path: str, *, state: str = _SAFE) -> None:
    """Raise what a failed answer stands for; nothing when it did not fail."""
    if "error" not in answer:
        return
    kind, message, code = answer["error"], answer.get("message"), answer.get("errno", 0)
    where = answer.get("path") or os.fsencode(path)
    if not isinstance(message, str) or not isinstance(code, int) or not isinstance(where, bytes):
        raise ProtocolError("the guest's answer makes no sense")
    if kind == "os":
        raise failure(what, os.fsdecode(where), code, os.strerror(code) if code else message, state=state)
    if kind == "refused":
        raise failure(what, path, errno.EBADMSG, message, state=state, remedy="the same again")
    raise ProtocolError(f"the guest did not understand: {message}")
