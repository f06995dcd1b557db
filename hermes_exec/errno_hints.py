"""What to try where a machine has run out of something, gives a user no more of it, or keeps a file of ours closed."""

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


def remedy_for(code: object) -> str:
    """What to try after an error of this number; empty where it means no shortage, or is no number."""
    return _REMEDIES.get(code, "") if isinstance(code, int) else ""


def remedy_at(path: str | os.PathLike[str], code: object, otherwise: str) -> str:
    """What to try after an error of this number with a file or folder of ours; ``otherwise`` always helps."""
    quoted = shlex.quote(os.fspath(path))
    if code in {errno.EACCES, errno.EPERM}:
        return f"ls -ld {quoted}, which shows the rights, or {otherwise}"
    if code in {errno.ENOTDIR, errno.EEXIST, errno.EISDIR}:
        return f"{otherwise}, or move away what is at {quoted}"
    return remedy_for(code) or otherwise


def is_full(path: str | os.PathLike[str]) -> bool:
    """Whether the disk of a path has no room left for us."""
    try:
        return os.statvfs(path).f_bavail == 0
    except OSError:
        return False
