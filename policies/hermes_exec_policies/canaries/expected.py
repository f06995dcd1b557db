"""What each attempt has to end with, which rule it tries to break, and which layer alone stops it, if one does.

An error number is a *set*: a read-only mount says 30, a security module 13, a filter or a missing right 1, a folder
that is not there 2. Where a layer is to be told from the others, its own number alone counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hermes_exec_policies.explain import applies
from hermes_exec_policies.folders import seen_in
from hermes_exec_policies.render.filter import ENOSYS, EPERM, filter_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec_policies.model import Policy

EACCES, EROFS, ENOENT, EXDEV, ENXIO, ESRCH = 13, 30, 2, 18, 6, 3
_SIGSYS = 31
WRITES = frozenset({EACCES, EROFS, EPERM, ENOENT})
"""How a write outside fails."""
NETWORK = frozenset({EPERM, EACCES, 97, 101, 111, 113, 110})
"""How reaching somebody fails: refused, no such family, no way there, nobody there."""
FILTERED = frozenset({EPERM, ENOSYS})
"""How a call fails that a filter refuses, chosen so that without one it fails otherwise."""


@dataclass(frozen=True, slots=True)
class Canary:
    """One attempt."""

    name: str
    rule: str
    layer: str = ""
    """The only mechanism that stops it this way; empty where several do."""
    errnos: frozenset[int] = frozenset()
    absent: bool = False
    """Whether it also holds when there was nothing to be had."""
    signals: frozenset[int] = frozenset()
    asked: Callable[[Policy], bool] = lambda _: True
    """Whether the policy forbids it, if it has the rule at all."""
    alone: bool = False
    """Whether it needs a twin to itself, because it ends everything that is in there."""
    abi: int = 0
    """The version of Landlock without which nothing stops it."""

    def belongs_to(self, policy: Policy) -> bool:
        """Whether a policy forbids it."""
        return applies(policy, self.rule) and self.asked(policy)


CONTROLS = ("control-write", "control-read", "control-run", "control-socket", "control-thread", "control-signal")
"""What has to work."""


def _writes(name: str, *, layer: str = "", errnos: frozenset[int] = WRITES) -> Canary:
    return Canary(name, "files.write", layer, errnos)


def _absent(name: str, rule: str, layer: str = "", errnos: frozenset[int] = WRITES | {ENXIO}) -> Canary:
    return Canary(name, rule, layer, errnos, absent=True)


def _network(name: str, family: str = "", *, absent: bool = False) -> Canary:
    if family:
        return Canary(
            name, "network.sockets", errnos=NETWORK, absent=absent, asked=lambda p: family not in p.network.sockets
        )
    return Canary(name, "network.isolated", errnos=NETWORK | {ENOENT}, absent=absent)


def _call(call: str, arguments: tuple[int, ...] = (), name: str = "", *, told: bool = True) -> Canary:
    """``told`` says whether an unfiltered call fails otherwise, so that the filter alone explains the outcome."""

    def asked(policy: Policy) -> bool:
        wanted = filter_of(policy)
        return wanted is not None and wanted.answer(call, (*arguments, *(0,) * (6 - len(arguments)))) != 0

    layer = "seccomp" if told else ""
    return Canary(f"kernel-{name or call.replace('_', '-')}", "syscalls.filtered", layer, FILTERED, asked=asked)


_ALL = (1 << 32) - 1
_CALLS = (
    _call("kcmp"),
    _call("pidfd_getfd"),
    _call("process_madvise"),
    _call("mount"),
    _call("umount2", name="umount"),
    _call("pivot_root", told=False),
    _call("chroot"),
    _call("open_tree"),
    _call("move_mount", told=False),
    _call("fsopen", told=False),
    _call("mount_setattr"),
    _call("statmount"),
    _call("unshare"),
    _call("setns"),
    _call("clone3"),
    _call("openat2"),
    _call("bpf", told=False),
    _call("perf_event_open", name="perf"),
    _call("userfaultfd"),
    _call("io_uring_setup", name="io-uring"),
    _call("add_key"),
    _call("request_key"),
    _call("keyctl"),
    _call("init_module", told=False),
    _call("finit_module", told=False),
    _call("kexec_load", name="kexec", told=False),
    _call("kexec_file_load", name="kexec-file", told=False),
    _call("clock_settime"),
    _call("settimeofday"),
    _call("adjtimex"),
    _call("personality", (_ALL,)),
    _call("modify_ldt"),
    _call("iopl", told=False),
    _call("ioperm", told=False),
    _call("memfd_create", name="memfd"),
    _call("memfd_secret"),
    _call("name_to_handle_at", name="name-to-handle"),
    _call("open_by_handle_at", name="open-by-handle", told=False),
    _call("fanotify_init", name="fanotify", told=False),
    _call("quotactl_fd", name="quotactl"),
    _call("mbind"),
    _call("move_pages"),
    _call("seccomp"),
    _call("shmget", name="shm"),
    _call("msgget", name="message-queue"),
    _call("semget", name="semaphore"),
    _call("mq_open"),
    _call("reboot", told=False),
    _call("acct", told=False),
    _call("swapon", told=False),
    _call("sethostname", told=False),
    _call("socket", (99,), name="socket-family"),
    _call("socketpair", (2,), name="socketpair-family"),
    _call("socket", ((1 << 32) | 2,), name="socket-high-bits"),
)


def _beside(name: str, errnos: frozenset[int] = NETWORK, *, absent: bool = False) -> Canary:
    """One that tries to reach somebody past the proxy, or through it somebody who was not named."""
    return Canary(name, "network.hosts", errnos=errnos, absent=absent)


_REFUSED = frozenset({EACCES})
"""What an attempt through the proxy ends with that the proxy refused; not with silence, for that proves nothing."""
_HOSTS = (
    _beside("network-tcp"),
    _beside("network-loopback"),
    _beside("network-udp"),
    _beside("network-dns", absent=True),
    _beside("network-raw"),
    _beside("network-packet"),
    _beside("network-interfaces", absent=True),
    _beside("network-abstract"),
    *(_beside(f"egress-{name}", _REFUSED) for name in ("address", "loopback", "name", "metadata", "method", "trick")),
)

CANARIES: tuple[Canary, ...] = (
    replace(_call("ptrace"), rule="processes.traced"),
    replace(_call("process_vm_readv", name="process-vm"), rule="processes.traced"),
    *(_writes(f"files-{name}") for name in ("etc", "root", "skills", "app", "climb", "symlink", "chmod", "sysrq")),
    _writes("files-usr", layer="mounts", errnos=frozenset({EROFS})),
    _writes("files-change"),
    Canary("files-folders", "files.write", "Landlock", frozenset({EACCES}), asked=lambda p: bool(seen_in(p)[0]), abi=1),
    _writes("files-proc-sys"),
    _writes("files-hardlink", errnos=WRITES | {EXDEV}),
    _writes("files-rename", errnos=WRITES | {EXDEV}),
    _writes("files-fd-reopen"),
    _absent("files-cgroup", "files.write"),
    Canary("files-proc-self", "lsm", "security module", frozenset({EACCES})),
    Canary("files-list-root", "lsm", "security module", frozenset({EACCES}), asked=lambda p: p.files.hidden, abi=1),
    _absent("files-proc-root", "files.hidden"),
    Canary("files-mknod", "files.devices", errnos=frozenset({EPERM, EACCES})),
    Canary("files-fifo", "syscalls.filtered", "seccomp", FILTERED, asked=lambda p: "mknod" not in p.calls),
    _absent("files-devices", "files.devices"),
    Canary("files-run-written", "files.run", errnos=frozenset({EACCES, EPERM})),
    Canary("files-run-scratch", "files.run", errnos=frozenset({EACCES, EPERM}), absent=True),
    Canary("files-map-written", "files.run", "noexec mounts", frozenset({EPERM, EACCES})),
    Canary("files-set-id", "syscalls.set_id_files", "seccomp", FILTERED),
    Canary("files-set-id-open", "syscalls.set_id_files", "seccomp", FILTERED),
    *_CALLS,
    Canary("kernel-user-namespace", "privileges.namespaces", errnos=FILTERED | {28}),
    Canary("kernel-clone-namespace", "privileges.namespaces", errnos=FILTERED | {28}),
    Canary("kernel-x32", "syscalls.native", errnos=frozenset({ENOSYS}), signals=frozenset({_SIGSYS})),
    Canary("kernel-writable-code", "syscalls.writable_code", "seccomp", FILTERED | {EACCES}),
    Canary("kernel-mprotect", "syscalls.writable_code", "seccomp", FILTERED),
    Canary("kernel-setuid", "privileges.capabilities", errnos=frozenset({EPERM, 22}), absent=True),
    Canary("kernel-real-time", "privileges.capabilities", errnos=frozenset({EPERM})),
    _network("network-tcp", "inet"),
    _network("network-tcp6", "inet6"),
    _network("network-loopback"),
    _network("network-udp", "inet"),
    _network("network-dns", "inet", absent=True),
    _network("network-raw"),
    _network("network-packet"),
    _network("network-netlink", "netlink"),
    _network("network-vsock", "vsock"),
    _network("network-alg", "alg"),
    _network("network-listen", "inet"),
    *_HOSTS,
    _absent("network-interfaces", "network.isolated", "network namespace"),
    Canary("network-abstract", "processes.ipc", errnos=NETWORK, asked=lambda p: p.network.access == "none"),
    Canary("network-unix", "files.hidden", errnos=NETWORK | {ENOENT, EROFS}),
    _absent("network-engine", "files.hidden"),
    _absent("network-inherited", "environment.cleared"),
    Canary("network-credentials", "privileges.capabilities", errnos=frozenset({EPERM, 22}), absent=True),
    _absent("processes-see", "processes.hidden", "process namespace"),
    Canary("processes-signal", "processes.hidden", errnos=frozenset({ESRCH, EPERM, EACCES})),
    Canary(
        "processes-signal-first", "lsm", "security module", frozenset({EPERM, EACCES}), absent=True,
        asked=lambda p: p.processes.hidden, abi=6,
    ),
    Canary("processes-memory-first", "lsm", errnos=frozenset({EACCES, EPERM}), absent=True),
    _absent("processes-terminal", "processes.terminal"),
    Canary("processes-type", "processes.terminal", errnos=frozenset({EPERM, 25, 5, EACCES})),
    Canary("processes-priority", "privileges.capabilities", errnos=frozenset({EACCES, EPERM})),
    _absent("posture-root", "user.ordinary", "user"),
    _absent("posture-groups", "user.ordinary"),
    _absent("posture-capabilities", "privileges.capabilities", "capabilities"),
    Canary("posture-label", "lsm", absent=True),
    _absent("posture-new-privileges", "privileges.none_gained", "no_new_privs"),
    _absent("posture-seccomp", "syscalls.filtered", "seccomp"),
    _absent("secrets-environment", "environment.cleared", "environment"),
    _absent("secrets-variables", "environment.cleared", "environment"),
    _absent("secrets-other-environments", "processes.hidden"),
    _absent("secrets-command-lines", "processes.hidden"),
    _absent("secrets-file", "files.hidden"),
    _absent("secrets-home", "files.hidden"),
    _absent("secrets-shadow", "user.ordinary"),
    _absent("secrets-keys", "files.masked"),
    _absent("secrets-machine", "files.masked"),
    _absent("secrets-shared-memory", "processes.ipc", "IPC namespace"),
    _absent("secrets-kernel-log", "files.devices"),
    _absent("secrets-kernel-memory", "files.masked"),
    Canary("limits-open-files", "limits.open_files", "limits of a process", frozenset({24})),
    Canary("limits-file-size", "limits.file_size", errnos=frozenset({27, 28})),
    Canary("limits-disk", "limits.disk", "folders in memory", frozenset({28, 122})),
    Canary("limits-shared-memory", "limits.shared_memory", errnos=frozenset({28, ENOENT})),
    Canary("limits-inodes", "limits.inodes", "folders in memory", frozenset({28, 122})),
    Canary("limits-core", "limits.core", errnos=frozenset({EPERM})),
    Canary("limits-raise", "limits.open_files", errnos=frozenset({EPERM})),
    Canary("limits-locked-memory", "limits.locked_memory", errnos=frozenset({12, 11, EPERM})),
    Canary("limits-cpu-time", "limits.cpu_time", absent=True),
    Canary("limits-processes", "limits.processes", errnos=frozenset({11, 12}), alone=True),
    Canary("limits-memory", "limits.memory", errnos=frozenset({12}), alone=True),
    Canary("limits-time", "limits.time", alone=True),
    Canary("limits-output", "limits.output", alone=True),
)  # fmt: skip
"""Every attempt, in the order in which they are made."""

NEED_PROC = frozenset(
    {
        "files-fd-reopen", "files-proc-self", "network-inherited", "network-interfaces", "posture-capabilities",
        "posture-label", "posture-new-privileges", "posture-seccomp", "processes-memory-first", "processes-see",
        "secrets-shared-memory",
    }
)  # fmt: skip
"""Attempts that look at themselves or at others in /proc, so where there is none they show nothing. What they are
about is looked at from outside, and tried in other ways as well; what attempts /proc itself is refused all the same."""


def canaries_of(policy: Policy) -> tuple[Canary, ...]:
    """The attempts that a policy forbids, wherever it is enforced."""
    return tuple(canary for canary in CANARIES if canary.belongs_to(policy))
