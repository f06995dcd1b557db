"""What each attempt has to end with, which rule it tries to break, and which layer alone stops it, if one does.

The error numbers are those of ``outcomes``: where the filter refuses a call, its own answer alone counts; else what the
mechanism gives that is asked first in that kind of place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_exec_policies.canaries import outcomes as ends
from hermes_exec_policies.canaries.canary import Call, Canary
from hermes_exec_policies.folders import seen_in
from hermes_exec_policies.render.filter import filter_of
from hermes_exec_policies.start_program import BUBBLEWRAP

if TYPE_CHECKING:
    from hermes_exec_policies.model import Policy

_SIGSYS = 31
CONTROLS = ("control-write", "control-read", "control-run", "control-socket", "control-thread", "control-signal")
"""What has to work."""


def _writes(name: str, errnos: frozenset[int] = ends.READ_ONLY, *, layer: str = "") -> Canary:
    return Canary(f"files-{name}", "files.write", layer, errnos)


def _absent(name: str, rule: str, layer: str = "", errnos: frozenset[int] = frozenset()) -> Canary:
    return Canary(name, rule, layer, errnos, absent=True)


def _filter(name: str, rule: str, call: str, *arguments: int, layer: str = "seccomp") -> Canary:
    """One of a rule that the filter alone holds."""
    return Canary(name, rule, layer, ends.NO_RIGHT, call=Call(call, arguments))


def _call(call: str, arguments: tuple[int, ...] = (), name: str = "", *, told: bool = True) -> Canary:
    """``told`` says whether an unfiltered call fails otherwise, so that the filter alone explains the outcome."""
    name, layer = f"kernel-{name or call.replace('_', '-')}", "seccomp" if told else ""
    return Canary(name, "syscalls.filtered", layer, call=Call(call, arguments), filtered=True)


def _family(name: str, family: str, *words: int) -> Canary:
    """A socket of a family that the policy does not allow."""

    def asked(policy: Policy) -> bool:
        return family not in policy.network.sockets

    return replace(_filter(f"network-{name}", "network.sockets", "socket", *words, layer=""), asked=asked)


def _isolated(name: str, errnos: frozenset[int], *words: int) -> Canary:
    """One that would reach something by a socket, if it could be made."""
    return Canary(f"network-{name}", "network.isolated", errnos=errnos, call=Call("socket", words))


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
    replace(_call("modify_ldt"), absent=True),  # of this kind of processor alone, as the next two
    replace(_call("iopl", told=False), absent=True),
    replace(_call("ioperm", told=False), absent=True),
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
    _call("io_setup", name="aio"),
    _call("inotify_init1", name="inotify"),
    _call("fcntl", (0, 1026), name="notify"),
    _call("reboot", told=False),
    _call("acct", told=False),
    _call("swapon", told=False),
    _call("sethostname", told=False),
    _call("socket", (99,), name="socket-family"),
    _call("socketpair", (2,), name="socketpair-family"),
    _call("socket", ((1 << 32) | 2,), name="socket-high-bits"),
)


def _beside(name: str, errnos: frozenset[int], *words: int, absent: bool = False) -> Canary:
    """One that tries to reach somebody past the proxy, or through it somebody who was not named."""
    return Canary(name, "network.hosts", errnos=errnos, absent=absent, call=Call("socket", words) if words else None)


_HOSTS = (
    _beside("network-tcp", ends.NO_HOST, 2, 1),
    _beside("network-loopback", ends.NOBODY, 2, 1),
    _beside("network-udp", ends.NO_HOST, 2, 2),
    _beside("network-dns", ends.UNRESOLVED, absent=True),
    _beside("network-raw", ends.NO_RIGHT | ends.CLOSED, 2, 3),
    _beside("network-packet", ends.NO_RIGHT | ends.CLOSED, 17, 3),
    _beside("network-interfaces", frozenset(), absent=True),
    _beside("network-abstract", ends.NO_LISTENER),
    *(
        _beside(f"egress-{name}", ends.CLOSED)
        for name in ("address", "loopback", "name", "metadata", "method", "trick")
    ),
)
"""A refusal of the proxy is a missing right; silence proves nothing."""

CANARIES: tuple[Canary, ...] = (
    _filter("kernel-ptrace", "processes.traced", "ptrace"),
    _filter("kernel-process-vm", "processes.traced", "process_vm_readv"),
    *(_writes(name) for name in ("etc", "root", "symlink", "chmod")),
    *(_writes(name, ends.READ_ONLY | ends.NOT_THERE) for name in ("skills", "app", "climb")),
    _writes("sysrq", ends.KERNELS_FILE),
    _writes("usr", ends.READ_ONLY_MOUNT, layer="mounts"),
    _writes("change"),
    Canary("files-folders", "files.write", "Landlock", ends.CLOSED, asked=lambda p: bool(seen_in(p)[0]), abi=1),
    _writes("proc-sys"),
    _writes("hardlink", ends.ACROSS),
    _writes("rename", ends.ACROSS),
    _writes("fd-reopen"),
    _absent("files-cgroup", "files.write"),
    Canary("files-proc-self", "lsm", "security module", ends.CLOSED),
    Canary("files-list-root", "lsm", "security module", ends.CLOSED, asked=lambda p: p.files.hidden, abi=1),
    Canary("files-proc-root", "files.hidden", errnos=ends.KERNELS_FILE),
    Canary("files-mknod", "files.devices", errnos=ends.NO_RIGHT | ends.CLOSED, call=Call("mknodat")),
    Canary("files-fifo", "syscalls.filtered", "seccomp", call=Call("mknodat"), filtered=True),
    _absent("files-devices", "files.devices"),
    Canary("files-run-written", "files.run", errnos=ends.CLOSED),
    Canary("files-run-scratch", "files.run", errnos=ends.CLOSED, absent=True),
    # A mount has no right to give here; a security module is asked before it.
    Canary("files-map-written", "files.run", "noexec mounts", ends.NO_RIGHT | ends.CLOSED),
    _filter("files-set-id", "syscalls.set_id_files", "fchmodat", 0, 0, 0o4755),
    _filter("files-set-id-open", "syscalls.set_id_files", "openat", 0, 0, 0o101, 0o2755),
    *_CALLS,
    _filter("kernel-user-namespace", "privileges.namespaces", "unshare", 1 << 28, layer=""),
    _filter("kernel-clone-namespace", "privileges.namespaces", "clone", 1 << 28 | 17, layer=""),
    Canary("kernel-x32", "syscalls.native", absent=True, signals=frozenset({_SIGSYS})),
    _filter("kernel-writable-code", "syscalls.writable_code", "mmap", 0, 4096, 7, 0x22),
    _filter("kernel-mprotect", "syscalls.writable_code", "mprotect", 1, 4096, 4),
    Canary("kernel-setuid", "privileges.capabilities", errnos=ends.NO_USER, absent=True),
    Canary("kernel-real-time", "privileges.capabilities", errnos=ends.NO_RIGHT),
    _family("tcp", "inet", 2, 1),
    _family("tcp6", "inet6", 10, 1),
    _isolated("loopback", ends.NOBODY, 2, 1),
    _family("udp", "inet", 2, 2),
    replace(_family("dns", "inet", 2, 2), call=None, errnos=ends.UNRESOLVED, absent=True),
    _isolated("raw", ends.NO_RIGHT | ends.CLOSED, 2, 3),
    _isolated("packet", ends.NO_RIGHT | ends.CLOSED, 17, 3),
    _family("netlink", "netlink", 16, 3),
    _family("vsock", "vsock", 40, 1),
    _family("alg", "alg", 38, 5),
    _family("listen", "inet", 2, 1),
    *_HOSTS,
    _absent("network-interfaces", "network.isolated", "network namespace"),
    Canary("network-abstract", "processes.ipc", errnos=ends.NO_LISTENER,
           asked=lambda p: p.network.access == "none"),
    Canary("network-unix", "files.hidden", errnos=ends.NOT_THERE),
    _absent("network-engine", "files.hidden"),
    _absent("network-inherited", "environment.cleared"),
    Canary("network-credentials", "privileges.capabilities", errnos=ends.NO_USER, absent=True),
    _absent("processes-see", "processes.hidden", "process namespace"),
    Canary("processes-signal", "processes.hidden", errnos=ends.NO_SUCH_PROCESS),
    Canary(
        "processes-signal-first", "lsm", "security module", ends.NO_RIGHT | ends.CLOSED, absent=True,
        asked=lambda p: p.processes.hidden, abi=6,
    ),
    Canary("processes-memory-first", "lsm", errnos=ends.CLOSED, absent=True),
    Canary("processes-terminal", "processes.terminal", errnos=ends.NOT_THERE),
    Canary("processes-type", "processes.terminal", errnos=ends.NO_TERMINAL),
    Canary("processes-priority", "privileges.capabilities", errnos=ends.CLOSED),
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
    Canary("secrets-file", "files.hidden", errnos=ends.NOT_THERE),
    _absent("secrets-home", "files.hidden"),
    Canary("secrets-shadow", "user.ordinary", errnos=ends.CLOSED | ends.NOT_THERE),
    _absent("secrets-keys", "files.masked", errnos=ends.KERNELS_FILE),
    _absent("secrets-machine", "files.masked"),
    _absent("secrets-shared-memory", "processes.ipc", "IPC namespace", ends.KERNELS_FILE),
    Canary("secrets-kernel-log", "files.devices", errnos=ends.NOT_THERE),
    _absent("secrets-kernel-memory", "files.masked", errnos=ends.KERNELS_FILE),
    Canary("limits-open-files", "limits.open_files", "limits of a process", ends.TOO_MANY_FILES),
    Canary("limits-file-size", "limits.file_size", errnos=ends.TOO_LARGE),
    Canary("limits-disk", "limits.disk", "folders in memory", ends.NO_ROOM),
    Canary("limits-shared-memory", "limits.shared_memory", errnos=ends.NO_ROOM | ends.NOT_THERE),
    Canary("limits-inodes", "limits.inodes", "folders in memory", ends.NO_ROOM),
    Canary("limits-core", "limits.core", errnos=ends.NO_RIGHT),
    Canary("limits-raise", "limits.open_files", errnos=ends.NO_RIGHT),
    # None at all, or no more.
    Canary("limits-locked-memory", "limits.locked_memory", errnos=ends.NO_RIGHT | ends.NO_MEMORY),
    _absent("limits-cpu-time", "limits.cpu_time"),
    Canary("limits-processes", "limits.processes", errnos=ends.NO_PROCESS, alone=True),
    Canary("limits-memory", "limits.memory", errnos=ends.NO_MEMORY, alone=True),
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


def canaries_of(policy: Policy, place: str = BUBBLEWRAP, *, proc: bool = True) -> tuple[Canary, ...]:
    """The attempts that a policy forbids, each with how it has to fail in such a place with or without a /proc."""
    wanted = filter_of(policy)
    return tuple(
        replace(canary, errnos=canary.errnos_in(place, wanted, proc=proc))
        for canary in CANARIES
        if canary.belongs_to(policy, wanted)
    )
