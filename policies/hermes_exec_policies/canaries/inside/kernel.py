"""Attempts with privileged or rarely needed system calls.

Where possible, the arguments of a call are such that it fails differently from a filter (EPERM, ENOSYS) if no filter
applies: a pointer to unmapped memory (EFAULT), an invalid descriptor (EBADF), an invalid flag (EINVAL), a process that
does not exist (ESRCH). So the errno shows whether the filter refused the call, even if the kernel would refuse it too.
"""

import mmap
import os

from .kit import Absent, attempt
from .system import BAD, call, call_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Tuple

    from .kit import Config

_ALL = 2**32 - 1
_CALLS: "dict[str, Tuple[Any, ...]]" = {
    "kernel-ptrace": ("ptrace", 16, _ALL, 0, 0),
    "kernel-process-vm": ("process_vm_readv", 0, 0, 0, 0, 0, 1),
    "kernel-kcmp": ("kcmp", 0, 0, 99, 0, 0),
    "kernel-pidfd-getfd": ("pidfd_getfd", _ALL, _ALL, 1),
    "kernel-process-madvise": ("process_madvise", _ALL, 0, 0, 0, 1),
    "kernel-mount": ("mount", BAD, BAD, BAD, 0, 0),
    "kernel-umount": ("umount2", BAD, _ALL),
    "kernel-pivot-root": ("pivot_root", BAD, BAD),
    "kernel-chroot": ("chroot", BAD),
    "kernel-open-tree": ("open_tree", _ALL, BAD, _ALL),
    "kernel-move-mount": ("move_mount", _ALL, BAD, _ALL, BAD, _ALL),
    "kernel-fsopen": ("fsopen", BAD, _ALL),
    "kernel-mount-setattr": ("mount_setattr", _ALL, BAD, _ALL, BAD, 0),
    "kernel-statmount": ("statmount", BAD, BAD, 0, 0),
    "kernel-unshare": ("unshare", 1),
    "kernel-setns": ("setns", _ALL, 0),
    "kernel-clone3": ("clone3", 0, 0),
    "kernel-openat2": ("openat2", _ALL, BAD, BAD, 0),
    "kernel-bpf": ("bpf", _ALL, BAD, 1 << 20),
    "kernel-perf": ("perf_event_open", BAD, 0, 0, _ALL, _ALL),
    "kernel-userfaultfd": ("userfaultfd", _ALL),
    "kernel-io-uring": ("io_uring_setup", 0, BAD),
    "kernel-add-key": ("add_key", BAD, BAD, 0, 0, 0),
    "kernel-request-key": ("request_key", BAD, BAD, 0, 0),
    "kernel-keyctl": ("keyctl", 9999, 0, 0, 0, 0),
    "kernel-init-module": ("init_module", BAD, 0, BAD),
    "kernel-finit-module": ("finit_module", _ALL, BAD, 0),
    "kernel-kexec": ("kexec_load", 0, _ALL, BAD, 0),
    "kernel-kexec-file": ("kexec_file_load", _ALL, _ALL, 0, 0, _ALL),
    "kernel-clock-settime": ("clock_settime", 9999, BAD),
    "kernel-settimeofday": ("settimeofday", BAD, 0),
    "kernel-adjtimex": ("adjtimex", BAD),
    "kernel-personality": ("personality", _ALL),
    "kernel-modify-ldt": ("modify_ldt", 0, 0, 0),
    "kernel-iopl": ("iopl", 99),
    "kernel-ioperm": ("ioperm", 1 << 20, 1, 1),
    "kernel-memfd": ("memfd_create", BAD, _ALL),
    "kernel-memfd-secret": ("memfd_secret", _ALL),
    "kernel-name-to-handle": ("name_to_handle_at", _ALL, BAD, BAD, BAD, _ALL),
    "kernel-open-by-handle": ("open_by_handle_at", _ALL, BAD, 0),
    "kernel-fanotify": ("fanotify_init", _ALL, 0),
    "kernel-quotactl": ("quotactl_fd", _ALL, 0, 0, 0),
    "kernel-mbind": ("mbind", 0, 0, 99, 0, 0, _ALL),
    "kernel-move-pages": ("move_pages", _ALL, 0, 0, 0, 0, _ALL),
    "kernel-seccomp": ("seccomp", _ALL, 0, 0),
    "kernel-shm": ("shmget", 0, 0, 0o600),
    "kernel-message-queue": ("msgget", 0x6865726D, 0),
    "kernel-semaphore": ("semget", 0, 0, 0o600),
    "kernel-mq-open": ("mq_open", BAD, 0, 0, 0),
    "kernel-aio": ("io_setup", 0, BAD),
    "kernel-inotify": ("inotify_init1", _ALL),
    "kernel-notify": ("fcntl", _ALL, 1026, 1),
    "kernel-reboot": ("reboot", 0, 0, 0, 0),
    "kernel-acct": ("acct", BAD),
    "kernel-swapon": ("swapon", BAD, 0),
    "kernel-sethostname": ("sethostname", BAD, 1),
    "kernel-socket-family": ("socket", 99, 1, 0),
    "kernel-socketpair-family": ("socketpair", 2, 1, 0, BAD),
    "kernel-socket-high-bits": ("socket", (1 << 32) | 2, 1, 0),
    "kernel-mprotect": ("mprotect", 1, 4096, 4),
}


def _plain(words: "Tuple[Any, ...]") -> "Any":
    def make(_: "Config") -> str:
        return str(call(*words))

    return make


for _name, _words in _CALLS.items():
    attempt(_name)(_plain(_words))


@attempt("kernel-user-namespace")
def user_namespace(_: "Config") -> str:
    """Create a user namespace, in which the process is root."""
    call("unshare", 0x10000000)
    return "a namespace of its own"


@attempt("kernel-clone-namespace")
def clone_namespace(_: "Config") -> str:
    """Create a user namespace with clone(2), whose flags a filter has to check."""
    pid = call("clone", 0x10000000 | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "a child in a namespace of its own"


@attempt("kernel-x32")
def x32(_: "Config") -> str:
    """Call getpid by its x32 number, which a filter of the 64-bit numbers alone does not match."""
    if os.uname()[4] != "x86_64":
        raise Absent("no such form on this machine")
    return str(call_number(0x40000000 + 39))


@attempt("kernel-writable-code")
def writable_code(_: "Config") -> str:
    """Map memory that is both writable and executable."""
    prot = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE, prot=prot).close()
    return "a page to write and run"


@attempt("kernel-setuid")
def setuid(_: "Config") -> str:
    """Become root."""
    if os.getuid() == 0:
        raise Absent("it is root already")
    os.setuid(0)
    return "root"


@attempt("kernel-real-time")
def real_time(_: "Config") -> str:
    """Set a real-time priority."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    return "real-time priority"
