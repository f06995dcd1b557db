"""The error numbers with which attempts fail: what each mechanism says, and in which kinds of place it is another one.

They are what a mechanism gives on every kernel that has it. A filter is asked before all others, and gives the number
of the policy's own rendering, so that is not said here. What none of them gives is no proof, though the attempt failed:
something else than what was promised has stopped it.
"""

from __future__ import annotations

EPERM, ENOENT, ESRCH, ENXIO, EAGAIN, ENOMEM, EACCES, EXDEV, EINVAL = 1, 2, 3, 6, 11, 12, 13, 18, 22
EMFILE, ENOTTY, EFBIG, ENOSPC, EROFS, ENOSYS, ENETUNREACH, ECONNREFUSED = 24, 25, 27, 28, 30, 38, 101, 111

READ_ONLY = frozenset({EROFS, EACCES, EPERM})
"""Nothing is made or changed there: the mount (or an image's file system), a mode, a security module, or a mark that
nobody changes a file. Kernels and file systems differ in which of them is asked first, and each is a denial."""
READ_ONLY_MOUNT = frozenset({EROFS})
"""The mount alone: nothing else says so, and to make a file the kernel asks it first."""
ACROSS = frozenset({EXDEV})
"""Two mounts: nothing is linked or moved from one to the other, whatever else they allow."""
NOT_THERE = frozenset({ENOENT})
CLOSED = frozenset({EACCES})
"""A mode, ``noexec`` for programs, a security module, the proxy."""
NO_RIGHT = frozenset({EPERM})
"""A capability that is missing, or a limit that cannot be raised."""
NO_ROOM = frozenset({ENOSPC})
NO_MEMORY = frozenset({ENOMEM})
NO_PROCESS = frozenset({EAGAIN})
NO_SUCH_PROCESS = frozenset({ESRCH})
NO_TERMINAL = frozenset({ENOTTY})
NO_LISTENER = frozenset({ECONNREFUSED})
TOO_LARGE = frozenset({EFBIG})
TOO_MANY_FILES = frozenset({EMFILE})
KERNELS_FILE = READ_ONLY | {ENOENT}
"""A file of /proc that is root's, or that this kernel was built without."""
NO_USER = frozenset({EINVAL})
"""A user namespace in which there is no root."""
NO_HOST = frozenset({EACCES, ENETUNREACH})
"""Landlock, where it knows of ports, or a network namespace with nothing in it."""
NOBODY = frozenset({EACCES, ECONNREFUSED})
"""The same of what listens on this machine."""
UNRESOLVED = frozenset({EPERM, EACCES, 97, ENETUNREACH, 110, ECONNREFUSED, 113})
"""What resolvers hand on of how they failed, each in its way."""

NOT_KNOWN = frozenset({ENOSYS})
"""Of a call that is newer than the kernel, or than the engine in whose container all of this is, which is asked too."""
DIFFERENT: dict[str, dict[str, frozenset[int]]] = {
    "docker": {
        "secrets-file": KERNELS_FILE,
        "network-unix": KERNELS_FILE,
        "processes-terminal": frozenset({ENXIO, EACCES}),  # there is one, and nobody at it
        "kernel-setuid": NO_RIGHT,  # its users are the machine's
        "network-credentials": NO_RIGHT,
        "kernel-x32": NOT_KNOWN,
    },
    "singularity": {
        "secrets-file": KERNELS_FILE,
        "network-unix": KERNELS_FILE,
        "processes-terminal": frozenset({ENXIO, EACCES}),
    },
}
"""By the kind of place and the name of the attempt; of what is not listed there is what bubblewrap gives."""

IN_PROC = frozenset(
    {
        "files-proc-root", "files-proc-sys", "files-sysrq", "secrets-command-lines", "secrets-kernel-memory",
        "secrets-keys", "secrets-other-environments",
    }
)  # fmt: skip
"""Of attempts at /proc, those that are made where there is none, and have to find nothing there."""
