"""The attempts: the rule that each tries to break, its expected outcome, and the layer that alone stops it, if any.

If the filter refuses a call, only the filter's error number counts. Otherwise the expected error number is that of the
mechanism that the kernel checks first in that kind of sandbox, on each kernel that has the mechanism. Another error
number proves nothing, although the attempt failed: something else has stopped it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hermes_exec_policies.explain import has_rule
from hermes_exec_policies.folders import shared_paths
from hermes_exec_policies.render.filter import build_filter
from hermes_exec_policies.start_program import BUBBLEWRAP

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec_policies.model import Policy
    from hermes_exec_policies.render.filter import Filter

EPERM, ENOENT, ESRCH, ENXIO, EAGAIN, ENOMEM, EACCES, EXDEV, EINVAL = 1, 2, 3, 6, 11, 12, 13, 18, 22
EMFILE, ENOTTY, EFBIG, ENOSPC, EROFS, ENOSYS, ENETUNREACH, ECONNREFUSED = 24, 25, 27, 28, 30, 38, 101, 111

READ_ONLY = frozenset({EROFS, EACCES, EPERM})
"""Writing is denied by the mount (or an image's file system), a mode, a security module, or the immutable attribute.
Kernels and file systems check these in different orders, and each is a denial."""
READ_ONLY_MOUNT = frozenset({EROFS})
"""Only the mount returns EROFS, and the kernel checks it first to create a file."""
ACROSS = frozenset({EXDEV})
"""Links and moves between two mounts fail, whatever the mounts allow."""
NOT_THERE = frozenset({ENOENT})
CLOSED = frozenset({EACCES})
"""Denied by a mode, ``noexec``, a security module or the proxy."""
NO_RIGHT = frozenset({EPERM})
"""A missing capability, or a limit that cannot be raised."""
NO_ROOM = frozenset({ENOSPC})
NO_MEMORY = frozenset({ENOMEM})
NO_PROCESS = frozenset({EAGAIN})
NO_SUCH_PROCESS = frozenset({ESRCH})
NO_TERMINAL = frozenset({ENOTTY})
NO_LISTENER = frozenset({ECONNREFUSED})
TOO_LARGE = frozenset({EFBIG})
TOO_MANY_FILES = frozenset({EMFILE})
KERNELS_FILE = READ_ONLY | {ENOENT}
"""A file in /proc that root owns, or that this kernel lacks."""
NO_USER = frozenset({EINVAL})
"""The user namespace has no root."""
NO_HOST = frozenset({EACCES, ENETUNREACH})
"""Denied by Landlock, if it handles ports, or by an empty network namespace."""
NO_HOST_6 = NO_HOST | {97, 99}
"""The same over IPv6, which a kernel may lack (EAFNOSUPPORT) or have without an address (EADDRNOTAVAIL)."""
NOBODY = frozenset({EACCES, ECONNREFUSED})
"""The same for a port of this machine."""
UNRESOLVED = frozenset({EPERM, EACCES, 97, ENETUNREACH, 110, ECONNREFUSED, 113})
"""Errors that resolvers pass on."""

NOT_KNOWN = frozenset({ENOSYS})
"""A call that the kernel does not know, or the engine of the container that we run in."""
DIFFERENT: dict[str, dict[str, frozenset[int]]] = {
    "docker": {
        "secrets-file": KERNELS_FILE,
        "network-unix": KERNELS_FILE,
        "processes-terminal": frozenset({ENXIO, EACCES}),  # a terminal exists, without a user
        "kernel-setuid": NO_RIGHT,  # it has no user namespace
        "network-credentials": NO_RIGHT,
        "kernel-x32": NOT_KNOWN,
    },
    "singularity": {
        "secrets-file": KERNELS_FILE,
        "network-unix": KERNELS_FILE,
        "processes-terminal": frozenset({ENXIO, EACCES}),
    },
}
"""Deviating outcomes by the kind of sandbox and the name of the attempt; others are as in bubblewrap."""

IN_PROC = frozenset(
    {
        "files-proc-root", "files-proc-sys", "files-sysrq", "secrets-command-lines", "secrets-kernel-memory",
        "secrets-keys", "secrets-other-environments",
    }
)  # fmt: skip
"""Attempts at files in /proc that are also made without a /proc, and have to find nothing then."""
_SIGSYS = 31
CONTROL_ATTEMPTS = (
    "control-write",
    "control-read",
    "control-run",
    "control-socket",
    "control-thread",
    "control-signal",
)
"""Attempts that have to succeed."""


@dataclass(frozen=True, slots=True)
class SystemCall:
    """A system call with the arguments that a filter compares."""

    name: str
    arguments: tuple[int, ...] = ()

    def refusal(self, by: Filter | None) -> int:
        """The error number of the filter for this call; 0 if it is allowed."""
        return by.answer(self.name, (*self.arguments, *(0,) * (6 - len(self.arguments)))) if by else 0


@dataclass(frozen=True, slots=True)
class Canary:
    """One attempt to break a rule."""

    name: str
    rule: str
    layer: str = ""
    """The only mechanism that stops it this way; empty if several do."""
    errnos: frozenset[int] = frozenset()
    """The expected error numbers if no filter refuses its call and the kind of sandbox does not deviate."""
    absent: bool = False
    """Whether a missing subject is also an expected outcome."""
    signals: frozenset[int] = frozenset()
    is_required: Callable[[Policy], bool] = lambda _: True
    """Whether a policy with the rule forbids it."""
    alone: bool = False
    """Whether it needs a probe sandbox of its own, because it ends all processes there."""
    abi: int = 0
    """The Landlock ABI version without which nothing stops it."""
    call: SystemCall | None = None
    """Its first system call, if a filter may refuse it."""
    filtered: bool = False
    """Whether the policy forbids it only if the filter refuses its call."""

    def applies_to(self, policy: Policy, wanted: Filter | None) -> bool:
        """Whether a policy with the filter ``wanted`` forbids it."""
        if self.filtered and not (self.call and self.call.refusal(wanted)):
            return False
        return has_rule(policy, self.rule) and self.is_required(policy)

    def get_expected_errnos(self, place: str, wanted: Filter | None, *, proc: bool = True) -> frozenset[int]:
        """The expected error numbers in a kind of sandbox, with or without a /proc."""
        if not proc and self.name in IN_PROC:
            return NOT_THERE
        if self.name in (different := DIFFERENT.get(place, {})):
            return different[self.name]
        refused = self.call.refusal(wanted) if self.call else 0
        if not refused:
            return self.errnos
        return NOT_KNOWN.union({refused}) if self.filtered else frozenset({refused})


def _writes(name: str, errnos: frozenset[int] = READ_ONLY, *, layer: str = "") -> Canary:
    return Canary(f"files-{name}", "files.write", layer, errnos)


def _absent(name: str, rule: str, layer: str = "", errnos: frozenset[int] = frozenset()) -> Canary:
    return Canary(name, rule, layer, errnos, absent=True)


def _filter(name: str, rule: str, call: str, *arguments: int, layer: str = "seccomp") -> Canary:
    """An attempt at a rule that only the filter enforces."""
    return Canary(name, rule, layer, NO_RIGHT, call=SystemCall(call, arguments))


def _call(call: str, arguments: tuple[int, ...] = (), name: str = "", *, distinct: bool = True) -> Canary:
    """``distinct`` is whether an unfiltered call fails differently, so that the outcome proves the filter."""
    name, layer = f"kernel-{name or call.replace('_', '-')}", "seccomp" if distinct else ""
    return Canary(name, "syscalls.filtered", layer, call=SystemCall(call, arguments), filtered=True)


def _family(name: str, family: str, *arguments: int) -> Canary:
    """An attempt to create a socket of a forbidden family."""

    def is_required(policy: Policy) -> bool:
        return family not in policy.network.sockets

    return replace(
        _filter(f"network-{name}", "network.sockets", "socket", *arguments, layer=""), is_required=is_required
    )


def _network(name: str, errnos: frozenset[int], *arguments: int) -> Canary:
    """An attempt to reach a host by a socket."""
    return Canary(f"network-{name}", "network.isolated", errnos=errnos, call=SystemCall("socket", arguments))


def _isolate_network(name: str, family: str, errnos: frozenset[int], *arguments: int, absent: bool = False) -> Canary:
    """An attempt to reach a host by a socket of an allowed family, which has no route."""
    return Canary(
        f"network-{name}", "network.isolated", errnos=errnos, absent=absent,
        is_required=lambda policy: family in policy.network.sockets,
        call=SystemCall("socket", arguments) if arguments else None,
    )  # fmt: skip


_ALL = (1 << 32) - 1
_CALLS = (
    _call("kcmp"),
    _call("pidfd_getfd"),
    _call("process_madvise"),
    _call("mount"),
    _call("umount2", name="umount"),
    _call("pivot_root", distinct=False),
    _call("chroot"),
    _call("open_tree"),
    _call("move_mount", distinct=False),
    _call("fsopen", distinct=False),
    _call("mount_setattr"),
    _call("statmount"),
    _call("unshare"),
    _call("setns"),
    _call("clone3"),
    _call("openat2"),
    _call("bpf", distinct=False),
    _call("perf_event_open", name="perf"),
    _call("userfaultfd"),
    _call("io_uring_setup", name="io-uring"),
    _call("add_key"),
    _call("request_key"),
    _call("keyctl"),
    _call("init_module", distinct=False),
    _call("finit_module", distinct=False),
    _call("kexec_load", name="kexec", distinct=False),
    _call("kexec_file_load", name="kexec-file", distinct=False),
    _call("clock_settime"),
    _call("settimeofday"),
    _call("adjtimex"),
    _call("personality", (_ALL,)),
    replace(_call("modify_ldt"), absent=True),  # only on x86, like the next two
    replace(_call("iopl", distinct=False), absent=True),
    replace(_call("ioperm", distinct=False), absent=True),
    _call("memfd_create", name="memfd"),
    _call("memfd_secret"),
    _call("name_to_handle_at", name="name-to-handle"),
    _call("open_by_handle_at", name="open-by-handle", distinct=False),
    _call("fanotify_init", name="fanotify", distinct=False),
    _call("quotactl_fd", name="quotactl"),
    _call("mbind"),
    _call("move_pages"),
    _call("seccomp"),
    _call("shmget", name="shm"),
    _call("msgget", name="message-queue"),
    _call("semget", name="semaphore"),
    _call("mq_open"),
    _call("io_setup", name="aio"),
    _call("inotify_init1", name="inotify"),
    _call("fcntl", (0, 1026), name="notify"),
    _call("reboot", distinct=False),
    _call("acct", distinct=False),
    _call("swapon", distinct=False),
    _call("sethostname", distinct=False),
    _call("socket", (99,), name="socket-family"),
    _call("socketpair", (2,), name="socketpair-family"),
    _call("socket", ((1 << 32) | 2,), name="socket-high-bits"),
)


def _beside(name: str, errnos: frozenset[int], *arguments: int, absent: bool = False) -> Canary:
    """An attempt to bypass the proxy, or to reach an unlisted host through it."""
    return Canary(
        name, "network.hosts", errnos=errnos, absent=absent, call=SystemCall("socket", arguments) if arguments else None
    )


_HOSTS = (
    _beside("network-tcp", NO_HOST, 2, 1),
    _beside("network-loopback", NOBODY, 2, 1),
    _beside("network-udp", NO_HOST, 2, 2),
    _beside("network-dns", UNRESOLVED, absent=True),
    _beside("network-raw", NO_RIGHT | CLOSED, 2, 3),
    _beside("network-packet", NO_RIGHT | CLOSED, 17, 3),
    _beside("network-interfaces", frozenset(), absent=True),
    _beside("network-abstract", NO_LISTENER),
    *(_beside(f"egress-{name}", CLOSED) for name in ("address", "loopback", "name", "metadata", "method", "trick")),
)
"""A refusal of the proxy counts as EACCES; a missing answer proves nothing."""

CANARIES: tuple[Canary, ...] = (
    _filter("kernel-ptrace", "processes.traced", "ptrace"),
    _filter("kernel-process-vm", "processes.traced", "process_vm_readv"),
    *(_writes(name) for name in ("etc", "root", "symlink", "chmod")),
    *(_writes(name, READ_ONLY | NOT_THERE) for name in ("skills", "app", "climb")),
    _writes("sysrq", KERNELS_FILE),
    _writes("usr", READ_ONLY_MOUNT, layer="mounts"),
    _writes("change"),
    Canary("files-folders", "files.write", "Landlock", CLOSED, is_required=lambda p: bool(shared_paths(p)[0]), abi=1),
    _writes("proc-sys"),
    _writes("hardlink", ACROSS),
    _writes("rename", ACROSS),
    _writes("fd-reopen"),
    _absent("files-cgroup", "files.write"),
    Canary("files-proc-self", "lsm", "security module", CLOSED),
    Canary("files-list-root", "lsm", "security module", CLOSED, is_required=lambda p: p.files.hidden, abi=1),
    Canary("files-proc-root", "files.hidden", errnos=KERNELS_FILE),
    Canary("files-mknod", "files.devices", errnos=NO_RIGHT | CLOSED, call=SystemCall("mknodat")),
    Canary("files-fifo", "syscalls.filtered", "seccomp", call=SystemCall("mknodat"), filtered=True),
    _absent("files-devices", "files.devices"),
    Canary("files-run-written", "files.run", errnos=CLOSED),
    Canary("files-run-scratch", "files.run", errnos=CLOSED, absent=True),
    # The mount returns EPERM here; a security module is checked before it.
    Canary("files-map-written", "files.run", "noexec mounts", NO_RIGHT | CLOSED),
    _filter("files-set-id", "syscalls.set_id_files", "fchmodat", 0, 0, 0o4755),
    _filter("files-set-id-open", "syscalls.set_id_files", "openat", 0, 0, 0o101, 0o2755),
    *_CALLS,
    _filter("kernel-user-namespace", "privileges.namespaces", "unshare", 1 << 28, layer=""),
    _filter("kernel-clone-namespace", "privileges.namespaces", "clone", 1 << 28 | 17, layer=""),
    Canary("kernel-x32", "syscalls.native", absent=True, signals=frozenset({_SIGSYS})),
    _filter("kernel-writable-code", "syscalls.writable_code", "mmap", 0, 4096, 7, 0x22),
    _filter("kernel-mprotect", "syscalls.writable_code", "mprotect", 1, 4096, 4),
    Canary("kernel-setuid", "privileges.capabilities", errnos=NO_USER, absent=True),
    Canary("kernel-real-time", "privileges.capabilities", errnos=NO_RIGHT),
    _family("tcp", "inet", 2, 1),
    _family("tcp6", "inet6", 10, 1),
    _network("loopback", NOBODY, 2, 1),
    _family("udp", "inet", 2, 2),
    replace(_family("dns", "inet", 2, 2), call=None, errnos=UNRESOLVED, absent=True),
    _network("raw", NO_RIGHT | CLOSED, 2, 3),
    _network("packet", NO_RIGHT | CLOSED, 17, 3),
    _family("netlink", "netlink", 16, 3),
    _family("vsock", "vsock", 40, 1),
    _family("alg", "alg", 38, 5),
    _family("listen", "inet", 2, 1),
    _isolate_network("tcp", "inet", NO_HOST, 2, 1),
    _isolate_network("tcp6", "inet6", NO_HOST_6, 10, 1),
    _isolate_network("udp", "inet", NO_HOST, 2, 2),
    _isolate_network("dns", "inet", UNRESOLVED, absent=True),
    *_HOSTS,
    _absent("network-interfaces", "network.isolated", "network namespace"),
    Canary("network-abstract", "processes.ipc", errnos=NO_LISTENER,
           is_required=lambda p: p.network.access == "none"),
    Canary("network-unix", "files.hidden", errnos=NOT_THERE),
    _absent("network-engine", "files.hidden"),
    _absent("network-inherited", "environment.cleared"),
    Canary("network-credentials", "privileges.capabilities", errnos=NO_USER, absent=True),
    _absent("processes-see", "processes.hidden", "process namespace"),
    Canary("processes-signal", "processes.hidden", errnos=NO_SUCH_PROCESS),
    Canary(
        "processes-signal-first", "lsm", "security module", NO_RIGHT | CLOSED, absent=True,
        is_required=lambda p: p.processes.hidden, abi=6,
    ),
    Canary("processes-memory-first", "lsm", errnos=CLOSED, absent=True),
    Canary("processes-terminal", "processes.terminal", errnos=NOT_THERE),
    Canary("processes-type", "processes.terminal", errnos=NO_TERMINAL),
    Canary("processes-priority", "privileges.capabilities", errnos=CLOSED),
    _absent("posture-root", "user.ordinary", "user"),
    _absent("posture-groups", "user.ordinary"),
    _absent("posture-capabilities", "privileges.capabilities", "capabilities"),
    _absent("posture-label", "lsm"),
    _absent("posture-new-privileges", "privileges.none_gained", "no_new_privs"),
    _absent("posture-seccomp", "syscalls.filtered", "seccomp"),
    _absent("secrets-environment", "environment.cleared", "environment"),
    _absent("secrets-variables", "environment.cleared", "environment"),
    _absent("secrets-other-environments", "processes.hidden"),
    _absent("secrets-command-lines", "processes.hidden"),
    Canary("secrets-file", "files.hidden", errnos=NOT_THERE),
    _absent("secrets-home", "files.hidden"),
    Canary("secrets-shadow", "user.ordinary", errnos=CLOSED | NOT_THERE),
    _absent("secrets-keys", "files.masked", errnos=KERNELS_FILE),
    _absent("secrets-machine", "files.masked"),
    _absent("secrets-shared-memory", "processes.ipc", "IPC namespace", KERNELS_FILE),
    Canary("secrets-kernel-log", "files.devices", errnos=NOT_THERE),
    _absent("secrets-kernel-memory", "files.masked", errnos=KERNELS_FILE),
    Canary("limits-open-files", "limits.open_files", "limits of a process", TOO_MANY_FILES),
    Canary("limits-file-size", "limits.file_size", errnos=TOO_LARGE),
    Canary("limits-disk", "limits.disk", "folders in memory", NO_ROOM),
    Canary("limits-shared-memory", "limits.shared_memory", errnos=NO_ROOM | NOT_THERE),
    Canary("limits-inodes", "limits.inodes", "folders in memory", NO_ROOM),
    Canary("limits-core", "limits.core", errnos=NO_RIGHT),
    Canary("limits-raise", "limits.open_files", errnos=NO_RIGHT),
    # No locked memory at all, or no more of it.
    Canary("limits-locked-memory", "limits.locked_memory", errnos=NO_RIGHT | NO_MEMORY),
    _absent("limits-cpu-time", "limits.cpu_time"),
    Canary("limits-processes", "limits.processes", errnos=NO_PROCESS, alone=True),
    Canary("limits-memory", "limits.memory", errnos=NO_MEMORY, alone=True),
    Canary("limits-time", "limits.time", alone=True),
    Canary("limits-output", "limits.output", alone=True),
)  # fmt: skip
"""All attempts, in the order in which they are made."""

NEEDS_PROC = frozenset(
    {
        "files-fd-reopen", "files-proc-self", "network-inherited", "network-interfaces", "posture-capabilities",
        "posture-label", "posture-new-privileges", "posture-seccomp", "processes-memory-first", "processes-see",
        "secrets-shared-memory",
    }
)  # fmt: skip
"""Attempts that need /proc to inspect processes, so they are left out without one. Their subjects are also checked from
outside and by other attempts; attempts at /proc itself still have to fail."""


def canaries_of(policy: Policy, place: str = BUBBLEWRAP, *, proc: bool = True) -> tuple[Canary, ...]:
    """The attempts that a policy forbids, with their expected error numbers in a kind of sandbox."""
    wanted = build_filter(policy)
    return tuple(
        replace(canary, errnos=canary.get_expected_errnos(place, wanted, proc=proc))
        for canary in CANARIES
        if canary.applies_to(policy, wanted)
    )
