"""System calls by number, for those that Python does not wrap."""

import ctypes
import os

from .kit import Absent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BAD = ctypes.c_void_p(1)
"""An invalid pointer: a call that no filter refuses fails with EFAULT when it dereferences it."""
_X86_64 = {
    "mmap": 9, "mprotect": 10, "shmget": 29, "msgget": 68, "semget": 64, "ptrace": 101, "mknod": 133,
    "personality": 135, "modify_ldt": 154, "adjtimex": 159, "settimeofday": 164, "mount": 165, "umount2": 166,
    "iopl": 172, "ioperm": 173, "init_module": 175, "reboot": 169, "acct": 163, "swapon": 167, "sethostname": 170,
    "pivot_root": 155, "chroot": 161, "clone": 56, "clock_settime": 227, "mbind": 237, "mq_open": 240,
    "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272, "move_pages": 279,
    "perf_event_open": 298, "fanotify_init": 300, "name_to_handle_at": 303, "open_by_handle_at": 304, "setns": 308,
    "process_vm_readv": 310, "kcmp": 312, "finit_module": 313, "seccomp": 317, "memfd_create": 319,
    "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323, "socket": 41, "socketpair": 53,
    "fcntl": 72, "inotify_init1": 294, "io_setup": 206,
}  # fmt: skip
_AARCH64 = {
    "mmap": 222, "mprotect": 226, "shmget": 194, "msgget": 186, "semget": 190, "ptrace": 117, "personality": 92,
    "adjtimex": 171, "settimeofday": 170, "mount": 40, "umount2": 39, "init_module": 105, "reboot": 142, "acct": 89,
    "swapon": 224, "sethostname": 161, "pivot_root": 41, "chroot": 51, "clone": 220, "clock_settime": 112,
    "mbind": 235, "mq_open": 180, "kexec_load": 104, "add_key": 217, "request_key": 218, "keyctl": 219, "unshare": 97,
    "move_pages": 239, "perf_event_open": 241, "fanotify_init": 262, "name_to_handle_at": 264,
    "open_by_handle_at": 265, "setns": 268, "process_vm_readv": 270, "kcmp": 272, "finit_module": 273, "seccomp": 277,
    "memfd_create": 279, "kexec_file_load": 294, "bpf": 280, "userfaultfd": 282, "socket": 198, "socketpair": 199,
    "fcntl": 25, "inotify_init1": 26, "io_setup": 0,
}  # fmt: skip
_BOTH = {
    "io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430, "clone3": 435, "openat2": 437,
    "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447,
    "statmount": 457,
}  # fmt: skip
_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: "Any") -> int:
    """Make a system call by name; raise OSError if it fails, and Absent if the machine has no such call."""
    numbers = dict(_BOTH, **{"x86_64": _X86_64, "aarch64": _AARCH64}.get(os.uname()[4], {}))
    if name not in numbers:
        raise Absent("no such call on this machine")
    return call_number(numbers[name], *arguments)


def call_number(number: int, *arguments: "Any") -> int:
    """Make the system call with this number."""
    given = [ctypes.c_ulong(each & (2**64 - 1)) if isinstance(each, int) else each for each in arguments]
    ctypes.set_errno(0)
    result = int(_libc.syscall(ctypes.c_long(number), *given))
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
