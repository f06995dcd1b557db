"""What to try where a machine has run out of something, or gives a user no more of it."""

from __future__ import annotations

import errno

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
