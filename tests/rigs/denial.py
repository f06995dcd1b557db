"""A seccomp filter that denies a few calls, to stand for kernels that lack them, such as gVisor's."""

from __future__ import annotations

import errno
import platform
import struct

_ARCH = 0xC000003E
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
Rule = tuple[int, int | None, int]
SUBREAPER = (157, 36, errno.EINVAL)
"""prctl(PR_SET_CHILD_SUBREAPER): the call's number on x86-64, its first argument or None, and the error."""
PIDFD = ((434, None, errno.ENOSYS), (424, None, errno.ENOSYS))
UNIX_SOCKETS = (41, 1, errno.EAFNOSUPPORT)
"""socket(AF_UNIX)."""


def why_not() -> str:
    """Why there can be no such filter here."""
    return "" if platform.machine() == "x86_64" else "the filter is written for x86-64"


def program(*rules: Rule) -> bytes:
    """The BPF program for these rules, which allows everything else."""
    lines = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, _ARCH), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, 0)]
    for number, argument, error in rules:
        if argument is None:
            lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | error)]
        else:
            lines += [(_EQUAL, 0, 4, number), (_LOAD, 0, 0, 16), (_EQUAL, 0, 1, argument)]
            lines += [(_RETURN, 0, 0, _ERRNO | error), (_LOAD, 0, 0, 0)]
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *line) for line in lines)
