"""Remedies for errno values: exhausted resources, limits of a user, and files that cannot be accessed."""

from __future__ import annotations

import errno
import os
import shlex

_REMEDIES = {
    errno.EMFILE: "ulimit -n 1024, for a process may open no more files",
    errno.ENFILE: "sysctl fs.file-max, which is used up",
    errno.EFBIG: "ulimit -f unlimited, for a file may not be as large as this",
    errno.ENOSPC: "free space; df -h shows which disk is full",
    errno.EDQUOT: "quota, which is used up",
    errno.EAGAIN: "ulimit -u, for a user may start no more processes",
    errno.ENOMEM: "free -m, for memory is used up",
}


def errno_remedy(code: object) -> str:
    """Return the remedy for an exhausted resource, or an empty text when ``code`` does not mean one."""
    return _REMEDIES.get(code, "") if isinstance(code, int) else ""


def path_remedy(path: str | os.PathLike[str], code: object, otherwise: str) -> str:
    """Return the remedy for an error with one of our own files or folders; ``otherwise`` is one that always helps."""
    quoted = shlex.quote(os.fspath(path))
    if code in {errno.EACCES, errno.EPERM}:
        return f"ls -ld {quoted}, which shows the rights, or {otherwise}"
    if code in {errno.ENOTDIR, errno.EEXIST, errno.EISDIR}:
        return f"{otherwise}, or move away what is at {quoted}"
    return errno_remedy(code) or otherwise


def is_disk_full(path: str | os.PathLike[str]) -> bool:
    """Return whether the file system of ``path`` has no free block for this user."""
    try:
        return os.statvfs(path).f_bavail == 0
    except OSError:
        return False
