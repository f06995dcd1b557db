"""Control groups: detection of usable ones by a trial, and the groups of single commands.

A group is created for each command and removed after it. In a hierarchy of version 1 it is a child of the guest's
group. Version 2 allows processes in leaves only, so it is a child of the nearest ancestor that delegates its
controllers; an ancestor is never used if the command would escape a limit on memory or CPU.

Groups are named after the guest's process, so that a later guest can recognize those of a killed guest.
"""

import os

from ..core import process_tree
from ..core.process_tree import read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

MEMORY, PROCESSES, CPU, CPUS = "memory", "processes", "cpu", "cpus"
_CONTROLLERS = {MEMORY: "memory", PROCESSES: "pids", CPU: "cpuacct", CPUS: "cpu"}
_USUAL = (MEMORY, PROCESSES, CPU)
_UNBOUND = {"memory.max": b"max", "memory.high": b"max", "cpu.max": b"max"}


def write(path: str, value: bytes) -> None:
    """Write a control file; raise OSError if the kernel refuses."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value)
    finally:
        os.close(fd)


def counter(path: str, name: bytes) -> int:
    """Return one number of a file that has a name and a number on each line."""
    for line in read_file(path).splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == name:
            return int(words[1])
    return 0


class CgroupParent:
    """A folder below which groups can be created. ``version`` is 1 or 2."""

    def __init__(self, version: int, folder: str) -> None:
        self.version = version
        self.folder = folder

    @property
    def enforcer(self) -> str:
        """Return the name that ``limits_info`` reports."""
        return "cgroup v{}".format(self.version)

    def file(self, kind: str) -> str:
        """Return the control file that limits memory, processes or processors, or counts CPU time."""
        old = {MEMORY: "memory.limit_in_bytes", PROCESSES: "pids.max", CPU: "cpuacct.usage", CPUS: "cpu.cfs_quota_us"}
        new = {MEMORY: "memory.max", PROCESSES: "pids.max", CPU: "cpu.stat", CPUS: "cpu.max"}
        return (old if self.version == 1 else new)[kind]

    def is_usable(self, kinds: "list[str]", name: str, *, joins: bool = True) -> bool:
        """Whether a group can be created, has the files of these kinds, and (with ``joins``) accepts a process."""
        path = "{}/{}".format(self.folder, name)
        try:
            os.mkdir(path)
        except OSError:
            return False
        try:
            for kind in kinds:
                if not os.access("{}/{}".format(path, self.file(kind)), os.R_OK if kind == CPU else os.W_OK):
                    return False
            return not joins or _can_join(path + "/cgroup.procs")
        finally:
            remove(path)


def _can_join(path: str) -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            write(path, b"0")
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def mounts() -> "Iterator[tuple[set[str], str, str]]":
    """Yield for each mounted hierarchy: its controllers (none: version 2), its root, its folder (see proc(5))."""
    for line in read_file("/proc/self/mountinfo").decode("utf-8", "surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(), after.split()
        if len(fields) > 4 and len(kinds) > 2 and kinds[0] in ("cgroup", "cgroup2"):
            yield set(kinds[2].split(",") if kinds[0] == "cgroup" else []), fields[3], fields[4]


def _own(controllers: "set[str]", root: str, mount: str) -> str:
    """Return the folder of our own group in a hierarchy; its top if our path is not visible from here."""
    for line in read_file("/proc/self/cgroup").decode("utf-8", "surrogateescape").splitlines():
        _, names, path = line.split(":", 2)
        if (set(names.split(",")) & controllers) if controllers else not names:
            if root != "/" and (path + "/").startswith(root + "/"):
                path = path[len(root) :]
            folder = (mount + path).rstrip("/")
            if ".." not in path and os.path.isdir(folder):
                return folder
    return mount


def _handing_on(own: str, mount: str) -> "str | None":
    """Return the nearest ancestor that delegates memory and pids without escaping a limit."""
    folder = own
    while True:
        handed = read_file(folder + "/cgroup.subtree_control").split()
        if b"memory" in handed and b"pids" in handed:
            return folder
        if folder == mount:
            return None
        for name, value in _UNBOUND.items():
            if not (read_file("{}/{}".format(folder, name)) or value).startswith(value):
                return None
        folder = os.path.dirname(folder)


def find(kinds: "tuple[str, ...]" = _USUAL, *, joins: bool = True) -> "dict[str, CgroupParent]":
    """Return the usable parents of groups of these kinds.

    Whether they accept a process is found by forking one, which a process with threads must not do.
    """
    homes: "dict[str, CgroupParent]" = {}
    probe = prefix() + os.urandom(3).hex()  # unique, as other threads may probe at the same time
    for controllers, root, mount in mounts():
        own = _own(controllers, root, mount)
        if controllers:
            for kind in kinds:
                there = _CONTROLLERS[kind] in controllers and kind not in homes
                if there and CgroupParent(1, own).is_usable([kind], probe, joins=joins):
                    homes[kind] = CgroupParent(1, own)
            continue
        above = _handing_on(own, mount)
        if above is not None and CgroupParent(2, above).is_usable([MEMORY, PROCESSES, CPU], probe, joins=joins):
            homes = dict.fromkeys(_USUAL, CgroupParent(2, above))
            if CPUS in kinds and CgroupParent(2, above).is_usable([CPUS], probe, joins=joins):
                homes[CPUS] = CgroupParent(2, above)
            break
        if CgroupParent(2, own).is_usable([CPU], probe, joins=joins):
            homes[CPU] = CgroupParent(2, own)
    for folder in {home.folder for home in homes.values()}:
        _sweep(folder)
    return homes


def prefix() -> str:
    """Return the prefix of this guest's group names: its pid namespace, pid and start time."""
    pid = os.getpid()
    return "hx-{}-{}-{}-".format(_space(), pid, process_tree.stat(pid)[2])


def _space() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _sweep(folder: str) -> None:
    """Remove the empty groups of guests that have ended."""
    for name in os.listdir(folder):
        words = name.split("-")
        if len(words) != 5 or words[0] != "hx" or not (words[2].isdigit() and words[3].isdigit()):
            continue
        if words[1] == str(_space()) and process_tree.stat(int(words[2]))[2] != int(words[3]):
            remove("{}/{}".format(folder, name))


def remove(path: str) -> bool:
    """Remove a group; return False while it is not empty."""
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
