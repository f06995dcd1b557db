"""Confine a process: mounts, limits, an AppArmor profile, Landlock and a seccomp filter, by plain system calls.

Part of the launcher, and sent with it; see ``launcher``.
"""

import os
import sys

from .libc import SockFprog, byref, capset, get_errno, mount_call, pack_u64, prctl, syscall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 1, 2, 4, 8, 32, 4096
TIMES = {1024: 1 << 10, 2048: 1 << 11, 4096: 1 << 21}
"""The flags of noatime, nodiratime and relatime: of statvfs(2), and of mount(2)."""
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 4, 22, 24, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL, SECCOMP_MODE_FILTER = 4, 2
SECCOMP = {"x86_64": 317, "aarch64": 277}
SET_MODE_FILTER, NEW_LISTENER, WAIT_KILLABLE = 1, 8, 32
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # on every architecture
RULE_PATH, RULE_PORT, VERSION = 1, 2, 1
RIGHTS_OF_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
"""The rights of a file: execute, write, read, truncate, ioctl. The others apply to folders."""
FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""The number of file rights of each ABI version of Landlock."""
NET_SINCE, SCOPE_SINCE = 4, 6
KERNELS_OWN = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
LAST_CAPABILITY = 63


class MechanismError(Exception):
    """A required mechanism is not available."""


def check(result: int, what: str) -> int:
    """Return the result of a call of the C library, or raise if it failed."""
    if result < 0:
        raise MechanismError("{}: {}".format(what, os.strerror(get_errno())))
    return result


def report_lacking(spec: "dict[str, Any]", report: "dict[str, str]", mechanism: str, why: str) -> None:
    """Report that a mechanism is not available; raise if it is required."""
    if mechanism in spec["required"]:
        raise MechanismError("{}: {}".format(mechanism, why))
    report["lacking-" + mechanism] = why.replace("\n", " ")


def mount(source: "bytes | None", target: bytes, kind: "bytes | None", flags: int, data: "bytes | None" = None) -> None:
    """Mount a file system; the arguments are those of the system call."""
    check(mount_call(source, target, kind, flags, data), "mount " + os.fsdecode(target))


def mount_all(spec: "dict[str, Any]", report: "dict[str, str]") -> None:
    """Mount the tmpfs folders, remount binds noexec, make kernel settings read-only, and cover the masked paths."""
    for target, size, inodes, executable, mode in spec["tmpfs"]:
        flags = MS_NOSUID | MS_NODEV | (0 if executable else MS_NOEXEC)
        mount(b"tmpfs", target, b"tmpfs", flags, "size={},nr_inodes={},mode={:o}".format(size, inodes, mode).encode())
    for target, writable in spec["noexec"]:
        flags = MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | MS_NOEXEC | (0 if writable else MS_RDONLY)
        kept = os.statvfs(target).f_flag  # flags that are set outside cannot be cleared inside
        mount(None, target, None, flags | sum(flag for seen, flag in TIMES.items() if kept & seen))
    if spec["readonly_proc"]:
        for path in KERNELS_OWN:
            if os.path.exists(path):
                mount(path.encode(), path.encode(), None, MS_BIND)
                flags = MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY
                mount(None, path.encode(), None, flags)
    for path in spec["masked"]:
        if os.path.isdir(path):
            flags = MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY
            mount(b"tmpfs", path, b"tmpfs", flags, b"size=4k,nr_inodes=2,mode=0555")
        elif os.path.exists(path):
            mount(b"/dev/null", path, None, MS_BIND)
    report["mounts"] = str(len(spec["tmpfs"]) + len(spec["noexec"]))


def drop_privileges() -> None:
    """Drop all capabilities from every set, for good."""
    check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    for number in range(LAST_CAPABILITY + 1):
        prctl(PR_CAPBSET_DROP, number, 0, 0, 0)  # fails for numbers that the kernel does not know
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = (0x20080522).to_bytes(4, sys.byteorder) + bytes(4)  # version 3, of this process
    check(capset(header, bytes(24)), "capabilities")
    if os.path.exists("/proc/self/status"):
        with open("/proc/self/status") as file:
            sets = [line.split() for line in file if line.startswith("Cap")]
        if any(int(value, 16) for _, value in sets):
            raise MechanismError("capabilities: some are left: {}".format(sets))


def become_undumpable() -> None:
    """Forbid other processes of the same user to open the memory of this process."""
    check(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "non-dumpable")


def set_rlimits(spec: "dict[str, Any]", report: "dict[str, str]") -> None:
    """Set the limits of setrlimit(2). A value above the hard limit is lowered to it."""
    if not spec["rlimits"]:
        return
    import resource

    for name, soft, hard in spec["rlimits"]:
        try:
            number: int = getattr(resource, "RLIMIT_" + name.upper())
            most = resource.getrlimit(number)[1]
            bounds = [most if value == -1 else value for value in (soft, hard)]
            if most != resource.RLIM_INFINITY:
                bounds = [min(value, most) for value in bounds]
            resource.setrlimit(number, (bounds[0], bounds[1]))
            report["rlimit-" + name] = "{} {}".format(*bounds)
        except (AttributeError, ValueError, OSError) as error:
            report_lacking(spec, report, "rlimits", "{}: {}".format(name, error))


def request_profile(spec: "dict[str, Any]", report: "dict[str, str]") -> None:
    """Request the AppArmor profile of the next exec, and read it back."""
    name = spec["apparmor"]
    if not name:
        return
    for path in ("/proc/self/attr/apparmor/exec", "/proc/self/attr/exec"):
        try:
            fd = os.open(path, os.O_RDWR)
        except OSError:
            continue
        try:
            os.write(fd, b"exec " + name.encode())
            os.lseek(fd, 0, os.SEEK_SET)
            text = os.read(fd, 4096).decode("utf-8", "replace").rstrip("\0\n")
        except OSError as error:
            report_lacking(spec, report, "apparmor", "the profile {}: {}".format(name, error.strerror))
            return
        finally:
            os.close(fd)
        if text.partition(" (")[0] != name:
            report_lacking(spec, report, "apparmor", "the profile {} was requested, but {!r} is set".format(name, text))
        else:
            report["apparmor"] = name
        return
    report_lacking(spec, report, "apparmor", "this kernel has no AppArmor")


def apply_landlock(spec: "dict[str, Any]", report: "dict[str, str]") -> None:
    """Apply the Landlock rules to this process and its future children."""
    rules = spec["landlock"]
    if rules is None:
        return
    version = syscall(CREATE_RULESET, None, 0, VERSION)
    if version < max(1, rules["minimum_abi"]):
        report_lacking(spec, report, "landlock", "ABI version {} is needed, but the kernel has {}".format(
            max(1, rules["minimum_abi"]), "none" if version < 1 else version
        ))  # fmt: skip
        return
    known = (1 << FS_RIGHTS.get(version, max(FS_RIGHTS.values()))) - 1
    handled = rules["handled_fs"] & known
    net = rules["handled_net"] & 3 if version >= NET_SINCE else 0
    scoped = rules["scoped"] & 3 if version >= SCOPE_SINCE else 0
    size = 24 if version >= SCOPE_SINCE else 16 if version >= NET_SINCE else 8
    fd = check(syscall(CREATE_RULESET, pack_u64(handled, net, scoped), size, 0), "landlock")
    for path, access, needed in rules["paths"]:
        if needed or os.path.exists(path):
            allow_path(fd, path, access & handled)
    for port, access in rules["ports"]:
        if access & net:
            add_rule(fd, RULE_PORT, pack_u64(access & net, port), "port {}".format(port))
    check(syscall(RESTRICT_SELF, fd, 0), "landlock")
    os.close(fd)
    report["landlock"] = "{} {} {} {}".format(version, handled, net, scoped)


def allow_path(ruleset: int, path: bytes, access: int) -> None:
    """Add the rule of an existing path, without the rights that do not apply to its type."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise MechanismError("landlock: {}: {}".format(os.fsdecode(path), error.strerror))  # noqa: B904  one line suffices
    if os.fstat(fd).st_mode & 0o170000 != 0o040000:
        access &= RIGHTS_OF_FILES
    if access:
        attr = access.to_bytes(8, sys.byteorder) + fd.to_bytes(4, sys.byteorder)
        add_rule(ruleset, RULE_PATH, attr, os.fsdecode(path))
    os.close(fd)


def add_rule(ruleset: int, kind: int, attr: bytes, what: str) -> None:
    """Add one rule; see landlock_add_rule(2)."""
    check(syscall(ADD_RULE, ruleset, kind, attr, 0), "landlock: " + what)


def load_filter(program: bytes, spec: "dict[str, Any]") -> bool:
    """Load the system call filter, the last mechanism; return whether one is loaded."""
    if not program:
        return False
    loaded = SockFprog(len(program) // 8, program)
    if prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, byref(loaded), 0, 0) == 0:
        return True
    report_lacking(spec, {}, "seccomp", os.strerror(get_errno()))
    return False


def load_observed_filter(program: bytes) -> int:
    """Load a filter that notifies an observer of some calls, and return the observer's descriptor."""
    loaded = SockFprog(len(program) // 8, program)
    number = SECCOMP.get(os.uname()[4], -1)
    # With WAIT_KILLABLE (Linux 5.19) no signal but SIGKILL interrupts the wait for a reply.
    for flags in (NEW_LISTENER | WAIT_KILLABLE, NEW_LISTENER):
        listener = syscall(number, SET_MODE_FILTER, flags, byref(loaded))
        if listener >= 0:
            return listener
    raise MechanismError("seccomp: refused calls cannot be observed from outside: " + os.strerror(get_errno()))
