"""Attempts on processes outside and on the sandbox's first process, on the posture of this one, and on secrets."""

import array
import fcntl
import os

from .kit import Absent, attempt, outside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .kit import Config

_TIOCSTI = 0x5412
HOMES = ("/root", "/home")


def _status() -> "dict[str, str]":
    with open("/proc/self/status") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def _others() -> "list[int]":
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


@attempt("processes-see")
def see(config: "Config") -> str:
    """Find a process outside by its command line."""
    for pid in _others():
        try:
            with open("/proc/{}/cmdline".format(pid), "rb") as file:
                if outside(config, "name").encode() in file.read():
                    return str(pid)
        except OSError:
            continue
    raise Absent("it is not among the processes here")


@attempt("processes-signal")
def signal_outside(config: "Config") -> str:
    """Signal a process outside by its process ID there."""
    os.kill(config["outside"]["pid"], 0)
    return "signalled"


@attempt("processes-signal-first")
def signal_first(_: "Config") -> str:
    """Signal the first process of the sandbox."""
    if os.getpid() == 1 or os.getppid() == 1:
        raise Absent("it is this program itself")
    os.kill(1, 0)
    return "signalled"


@attempt("processes-memory-first")
def memory_first(_: "Config") -> str:
    """Open the memory of the sandbox's first process for writing; system calls of that process are not filtered."""
    if os.getpid() == 1 or os.getppid() == 1:
        raise Absent("it is this program itself")
    os.close(os.open("/proc/1/mem", os.O_RDWR))
    return "/proc/1/mem"


@attempt("processes-terminal")
def terminal(_: "Config") -> str:
    """Open the controlling terminal."""
    os.close(os.open("/dev/tty", os.O_RDWR))
    return "/dev/tty"


@attempt("processes-type")
def type_ahead(_: "Config") -> str:
    """Insert input into the terminal, if standard input is one."""
    fcntl.ioctl(0, _TIOCSTI, array.array("b", [10]))
    return "typed"


@attempt("processes-priority")
def priority(_: "Config") -> str:
    """Raise the scheduling priority."""
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    return "priority -20"


@attempt("posture-root")
def posture_root(_: "Config") -> str:
    """Check whether the process is root."""
    if os.getuid() and os.geteuid() and os.getgid() and os.getegid():
        raise Absent("it is user {}".format(os.getuid()))
    return "uid {} gid {}".format(os.getuid(), os.getgid())


@attempt("posture-groups")
def posture_groups(_: "Config") -> str:
    """Check whether the process has groups of the user outside."""
    groups = [group for group in os.getgroups() if group not in (os.getgid(), 65534)]
    if not groups:
        raise Absent("no further groups")
    return str(groups)


@attempt("posture-capabilities")
def posture_capabilities(_: "Config") -> str:
    """Check whether the process has a capability in any of the five sets."""
    held = {name: value for name, value in _status().items() if name.startswith("Cap") and int(value, 16)}
    if not held:
        raise Absent("all five sets are empty")
    return str(held)


@attempt("posture-label")
def posture_label(config: "Config") -> str:
    """Check whether the AppArmor profile differs from the requested one: engines accept names of missing profiles."""
    wanted = config["label"]
    if not wanted:
        raise Absent("none was asked for")
    with open("/proc/self/attr/current") as file:
        label = file.read().strip("\0\n")
    if label == wanted + " (enforce)":
        raise Absent(label)
    return label or "none"


@attempt("posture-new-privileges")
def posture_new_privileges(_: "Config") -> str:
    """Check whether the process can gain privileges by running a program."""
    if _status().get("NoNewPrivs") == "1":
        raise Absent("no_new_privs is set")
    return "no_new_privs is not set"


@attempt("posture-seccomp")
def posture_seccomp(_: "Config") -> str:
    """Check whether the process has no filter of system calls."""
    if _status().get("Seccomp") == "2":
        raise Absent("a filter is there")
    return "no filter"


@attempt("secrets-environment")
def secrets_environment(config: "Config") -> str:
    """Find a secret of the outside in the environment."""
    secret = outside(config, "secret")
    names = [name for name, value in os.environ.items() if secret in value]
    if not names:
        raise Absent("no variable holds it")
    return ", ".join(names)


@attempt("secrets-variables")
def secrets_variables(config: "Config") -> str:
    """Find an environment variable that the launch did not set."""
    extra = sorted(set(os.environ) - set(config["variables"]))
    if not extra:
        raise Absent("only those that were given")
    return ", ".join(extra)


def _find_secret(config: "Config", name: str, absent: str) -> str:
    """Find a secret of the outside in a file of each other process in /proc."""
    secret = outside(config, "secret").encode()
    for pid in _others():
        try:
            with open("/proc/{}/{}".format(pid, name), "rb") as file:
                if secret in file.read():
                    return "process {}".format(pid)
        except OSError:
            continue
    raise Absent(absent)


@attempt("secrets-other-environments")
def secrets_other_environments(config: "Config") -> str:
    """Find a secret of the outside in the environment of other processes."""
    return _find_secret(config, "environ", "no process's variables hold it")


@attempt("secrets-command-lines")
def secrets_command_lines(config: "Config") -> str:
    """Find a secret of the outside in the argv of other processes."""
    return _find_secret(config, "cmdline", "no process's arguments hold it")


@attempt("secrets-file")
def secrets_file(config: "Config") -> str:
    """Read a world-readable file outside."""
    with open(config["outside"]["file"]) as file:
        return file.read(20)


@attempt("secrets-home")
def secrets_home(config: "Config") -> str:
    """List home folders of the outside; an image may have its own."""
    seen: "list[str]" = []
    for folder in HOMES:
        try:
            seen += ["{}/{}".format(folder, name) for name in os.listdir(folder)]
        except OSError:
            continue
    outside_ones = [tuple(each) for each in config["outside"]["homes"]]
    theirs = [path for path in seen if (os.lstat(path).st_dev, os.lstat(path).st_ino) in outside_ones]
    if not theirs:
        raise Absent("none of the outside's is to be seen")
    return ", ".join(theirs[:5])


@attempt("secrets-shadow")
def secrets_shadow(_: "Config") -> str:
    """Read the password hashes."""
    with open("/etc/shadow") as file:
        return file.read(10)


@attempt("secrets-keys")
def secrets_keys(_: "Config") -> str:
    """List the keys that the kernel keeps for users."""
    with open("/proc/keys") as file:
        keys = file.read()
    if not keys:
        raise Absent("none are listed")
    return keys[:80]


@attempt("secrets-machine")
def secrets_machine(_: "Config") -> str:
    """Read information about the machine and its users' keys in /proc."""
    told: "list[str]" = []
    for path in ("/proc/interrupts", "/proc/key-users", "/proc/sched_debug", "/proc/latency_stats", "/proc/cmdline"):
        try:
            with open(path) as file:
                if file.read(1):
                    told.append(path)
        except OSError:
            continue
    if not told:
        raise Absent("nothing is listed")
    return ", ".join(told)


@attempt("secrets-shared-memory")
def secrets_shared_memory(config: "Config") -> str:
    """List shared memory of the outside."""
    with open("/proc/sysvipc/shm") as file:
        if len(file.read().splitlines()) > 1:
            return "a segment of System V"
    if config["outside"]["shm"] in os.listdir("/dev/shm"):
        return "a file in /dev/shm"
    raise Absent("there is none")


@attempt("secrets-kernel-log")
def secrets_kernel_log(_: "Config") -> str:
    """Read the kernel's log."""
    with open("/dev/kmsg", "rb", buffering=0) as file:
        return str(file.read(10))


@attempt("secrets-kernel-memory")
def secrets_kernel_memory(_: "Config") -> str:
    """Read the kernel's memory or the addresses of its symbols."""
    with open("/proc/kcore", "rb") as file:
        if file.read(4):
            return "/proc/kcore"
    raise Absent("it is empty")
