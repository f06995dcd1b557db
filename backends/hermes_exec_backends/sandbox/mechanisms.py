"""What confines a process: mounts, bounds, a profile, rules and a filter, each by the kernel's own calls.

Part of the launcher, and sent with it; see ``launcher``.
"""

import os
import sys

from .libc import Filter, byref, capset, get_errno, mount_call, prctl, quads, syscall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 1, 2, 4, 8, 32, 4096
TIMES = {1024: 1 << 10, 2048: 1 << 11, 4096: 1 << 21}
"""How statvfs(2) shows noatime, nodiratime and relatime, and how mount(2) is told."""
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 4, 22, 24, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL, SECCOMP_MODE_FILTER = 4, 2
SECCOMP = {"x86_64": 317, "aarch64": 277}
SET_MODE_FILTER, NEW_LISTENER, WAIT_KILLABLE = 1, 8, 32
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # on every architecture
RULE_PATH, RULE_PORT, VERSION = 1, 2, 1
RIGHTS_OF_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
"""Those that say something of a file: execute, write, read, truncate, ioctl. The others are of folders."""
FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""How many rights each version of Landlock knows."""
NET_SINCE, SCOPE_SINCE = 4, 6
KERNELS_OWN = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
LAST_CAPABILITY = 63


class Failed(Exception):
    """Something required cannot be had."""


def check(result: int, what: str) -> int:
    """The result of a call of the C library, unless it failed."""
    if result < 0:
        raise Failed("{}: {}".format(what, os.strerror(get_errno())))
    return result


def lack(spec: "dict[str, Any]", report: "dict[str, str]", mechanism: str, why: str) -> None:
    """Go on without a mechanism, unless it is required."""
    if mechanism in spec["required"]:
        raise Failed("{}: {}".format(mechanism, why))
    report["lacking-" + mechanism] = why.replace("\n", " ")


def mount(source: "bytes | None", target: bytes, kind: "bytes | None", flags: int, data: "bytes | None" = None) -> None:
    """Mount something, with the kernel's own arguments."""
    check(mount_call(source, target, kind, flags, data), "mount " + os.fsdecode(target))


def mount_all(spec: "dict[str, Any]", report: "dict[str, str]") -> None:
    """New folders in memory, what may not be started from, what is covered, and what of the kernel is read-only."""
    for target, size, inodes, executable, mode in spec["tmpfs"]:
        flags = MS_NOSUID | MS_NODEV | (0 if executable else MS_NOEXEC)
        mount(b"tmpfs", target, b"tmpfs", flags, "size={},nr_inodes={},mode={:o}".format(size, inodes, mode).encode())
    for target, writable in spec["noexec"]:
        flags = MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | MS_NOEXEC | (0 if writable else MS_RDONLY)
        kept = os.statvfs(target).f_flag  # what is set outside may not be taken away in here
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
    """No capability is left in any set, and none can be had."""
    check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    for number in range(LAST_CAPABILITY + 1):
        prctl(PR_CAPBSET_DROP, number, 0, 0, 0)  # fails for those that the kernel does not know
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = (0x20080522).to_bytes(4, sys.byteorder) + bytes(4)  # version 3, of this process
    check(capset(header, bytes(24)), "capabilities")
    if os.path.exists("/proc/self/status"):
        with open("/proc/self/status") as file:
            sets = [line.split() for line in file if line.startswith("Cap")]
        if any(int(value, 16) for _, value in sets):
            raise Failed("capabilities: some are left: {}".format(sets))


def become_undumpable() -> None:
    """From now on nobody of the same user may open the memory of this process."""
    check(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "non-dumpable")


def limit(spec: "dict[str, Any]", report: "dict[str, str]") -> None:
    """The bounds of setrlimit(2); one that is above what may be set becomes the highest that may."""
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
            lack(spec, report, "rlimits", "{}: {}".format(name, error))


def ask_for_profile(spec: "dict[str, Any]", report: "dict[str, str]") -> None:
    """Have AppArmor start the program under a profile; what was asked for is read back."""
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
            told = os.read(fd, 4096).decode("utf-8", "replace").rstrip("\0\n")
        except OSError as error:
            lack(spec, report, "apparmor", "the profile {}: {}".format(name, error.strerror))
            return
        finally:
            os.close(fd)
        if told.partition(" (")[0] != name:
            lack(spec, report, "apparmor", "the profile {} was asked for, and {!r} is set".format(name, told))
        else:
            report["apparmor"] = name
        return
    lack(spec, report, "apparmor", "this kernel has none")


def confine(spec: "dict[str, Any]", report: "dict[str, str]") -> None:
    """Apply the rules of Landlock to this process and to all that it will start."""
    rules = spec["landlock"]
    if rules is None:
        return
    version = syscall(CREATE_RULESET, None, 0, VERSION)
    if version < max(1, rules["minimum_abi"]):
        lack(spec, report, "landlock", "version {} of it is needed, and there is {}".format(
            max(1, rules["minimum_abi"]), "none" if version < 1 else version
        ))  # fmt: skip
        return
    known = (1 << FS_RIGHTS.get(version, max(FS_RIGHTS.values()))) - 1
    handled = rules["handled_fs"] & known
    net = rules["handled_net"] & 3 if version >= NET_SINCE else 0
    scoped = rules["scoped"] & 3 if version >= SCOPE_SINCE else 0
    size = 24 if version >= SCOPE_SINCE else 16 if version >= NET_SINCE else 8
    fd = check(syscall(CREATE_RULESET, quads(handled, net, scoped), size, 0), "landlock")
    for path, access, needed in rules["paths"]:
        if needed or os.path.exists(path):
            allow_path(fd, path, access & handled)
    for port, access in rules["ports"]:
        if access & net:
            add_rule(fd, RULE_PORT, quads(access & net, port), "port {}".format(port))
    check(syscall(RESTRICT_SELF, fd, 0), "landlock")
    os.close(fd)
    report["landlock"] = "{} {} {} {}".format(version, handled, net, scoped)


def allow_path(ruleset: int, path: bytes, access: int) -> None:
    """One rule of a path, which has to be there; rights that its kind cannot have are left out."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise Failed("landlock: {}: {}".format(os.fsdecode(path), error.strerror))  # noqa: B904  one line is enough
    if os.fstat(fd).st_mode & 0o170000 != 0o040000:
        access &= RIGHTS_OF_FILES
    if access:
        attr = access.to_bytes(8, sys.byteorder) + fd.to_bytes(4, sys.byteorder)
        add_rule(ruleset, RULE_PATH, attr, os.fsdecode(path))
    os.close(fd)


def add_rule(ruleset: int, kind: int, attr: bytes, what: str) -> None:
    """Add one rule; see landlock_add_rule(2)."""
    check(syscall(ADD_RULE, ruleset, kind, attr, 0), "landlock: " + what)


def filter_calls(program: bytes, spec: "dict[str, Any]") -> bool:
    """Load the system call filter, the last thing that is applied; whether there is one now."""
    if not program:
        return False
    loaded = Filter(len(program) // 8, program)
    if prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, byref(loaded), 0, 0) == 0:
        return True
    lack(spec, {}, "seccomp", os.strerror(get_errno()))
    return False


def filter_and_tell(program: bytes) -> int:
    """Load a filter that asks somebody about some calls; the descriptor of whoever is to answer."""
    loaded = Filter(len(program) // 8, program)
    number = SECCOMP.get(os.uname()[4], -1)
    # Waiting for an answer is not to be interrupted by signals, where the kernel has that (Linux 5.19).
    for flags in (NEW_LISTENER | WAIT_KILLABLE, NEW_LISTENER):
        listener = syscall(number, SET_MODE_FILTER, flags, byref(loaded))
        if listener >= 0:
            return listener
    raise Failed("seccomp: what is refused cannot be seen from outside: " + os.strerror(get_errno()))
