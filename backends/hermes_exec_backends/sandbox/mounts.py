"""Compare the mounts of a sandbox, as the kernel lists them outside, with its specification, exactly.

Each difference is a line that begins with the policy rule that it breaks. ``RuntimeMounts`` lists the mounts that a
container runtime adds; any other mount that is not specified is a difference, read-only or not.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Self

    from hermes_exec_backends.sandbox.spec import Bind, Confinement, Tmpfs

_DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9)}
_KERNELS_OWN = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
_VIRTUAL = frozenset({"tmpfs", "devtmpfs", "devpts", "mqueue", "proc", "sysfs", "cgroup", "cgroup2", "rootfs"})
"""Types of file systems that hold no files of the machine's disks."""
_KIB, _PAGE = 1024, 64 << 10


@dataclass(frozen=True, slots=True)
class RuntimeMounts:
    """Mounts that a container runtime adds to the specified ones."""

    files: frozenset[str] = frozenset()
    """Files, generated or of the machine, that it mounts read-only in each container."""
    folders: frozenset[str] = frozenset()
    """Mount points of tmpfs and of kernel file systems."""
    bind_options: frozenset[str] = frozenset()
    """Options that each bind mount has."""
    starts_from_binds: bool = False
    """Whether it cannot mount a bind noexec."""


BUBBLEWRAP_MOUNTS = RuntimeMounts(bind_options=frozenset({"nosuid", "nodev"}))
_CONTAINERS = frozenset({"/dev", "/dev/pts", "/dev/mqueue", "/dev/shm", "/dev/console", "/sys"})  # noqa: S108  paths in there
DOCKER_MOUNTS = RuntimeMounts(
    files=frozenset({"/etc/hostname", "/etc/hosts", "/etc/resolv.conf"}), folders=_CONTAINERS, starts_from_binds=True
)
APPTAINER_MOUNTS = RuntimeMounts(
    files=frozenset({"/etc/group", "/etc/hosts", "/etc/localtime", "/etc/passwd", "/etc/resolv.conf"}),
    folders=_CONTAINERS | {"/tmp", "/var/tmp", "/dev/tty", "/dev/ptmx"},  # noqa: S108  likewise
    bind_options=frozenset({"nosuid", "nodev"}),
)


@dataclass(frozen=True, slots=True)
class _Mount:
    number: str
    parent: str
    target: str
    options: frozenset[str]
    kind: str
    settings: str
    """Options of the file system, as ``rw,size=64k``."""


class HeldSources:
    """The sources of binds, held open from before a sandbox is created until it has been compared with them.

    Meanwhile, a file can be replaced by another one under its name, as useradd replaces /etc/group. The sandbox may
    have either. While a file is held, no other one can get its inode number.
    """

    def __init__(self, binds: Iterable[Bind]) -> None:
        self._held: dict[str, int] = {}
        for source in {each.source for each in binds}:
            with contextlib.suppress(OSError):  # without a source no sandbox is created, which says so
                self._held[source] = os.open(source, os.O_PATH | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        """Return the sources."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close them."""
        while self._held:
            os.close(self._held.popitem()[1])

    def has(self, source: str, seen: os.stat_result) -> bool:
        """Return whether a file is the one that ``source`` was when it was held, or is now.

        Raises:
            OSError: the source cannot be read.
        """
        held = self._held.get(source)
        if held is not None and os.path.samestat(os.fstat(held), seen):
            return True
        return os.path.samestat(os.stat(source), seen)  # noqa: PTH116  plain strings are quick


def find_differences(
    confinement: Confinement, lines: Sequence[str], pid: int, runtime: RuntimeMounts, sources: HeldSources
) -> list[str]:
    """Compare the mounts of the process ``pid``, whose mountinfo is ``lines``, with the specification.

    Raises:
        OSError: the process or the source of a bind cannot be read.
    """
    return list(_Comparison(confinement, lines, pid, runtime, sources).differences())


class _Comparison:
    def __init__(
        self, confinement: Confinement, lines: Sequence[str], pid: int, runtime: RuntimeMounts, sources: HeldSources
    ) -> None:
        self._wanted = confinement
        self._runtime = runtime
        self._sources = sources
        self._root = f"/proc/{pid}/root"
        self._mounts = _visible(map(_parse, lines))
        self._ours = _our_mounts()

    def differences(self) -> Iterator[str]:
        wanted, known = self._wanted, set[str]()
        yield from self._check("/", "/" in self._mounts and "ro" in self._mounts["/"].options, "files.write")
        for place, bind in enumerate(wanted.binds):
            if any(_is_at_or_below(bind.target, later.target) for later in wanted.binds[place + 1 :]):
                continue  # a later bind covers this one
            known.add(bind.target)
            yield from self._check_bind(bind)
            for target in self._submounts(bind):
                known.add(target)
                if not bind.writable and target in self._mounts and "rw" in self._mounts[target].options:
                    yield f"files.write: {target} can be written"
        for folder in wanted.tmpfs:
            known.add(folder.target)
            yield from self._check_tmpfs(folder)
        for path in wanted.masked:
            known.add(path)
            yield from self._check_masked(path)
        known |= {"/"}
        yield from self._check_others(known)

    def _check_others(self, known: set[str]) -> Iterator[str]:
        """Mounts that the specification does not list."""
        wanted, mounts = self._wanted, self._mounts
        if wanted.proc and "/proc" not in known:
            yield from self._check("/proc", "/proc" in mounts and mounts["/proc"].kind == "proc", "processes.hidden")
            if "pid" in wanted.namespaces and self._shows_own_processes():
                yield "processes.hidden: /proc shows the processes of this machine"
        for target, mount in mounts.items():
            folder, _, name = target.rpartition("/")
            if target in known or (target == "/proc" and wanted.proc):
                continue
            if target in _KERNELS_OWN and wanted.proc:
                yield from self._check(target, mount.kind == "proc" and "ro" in mount.options, "files.write")
            elif folder == "/dev" and name in _DEVICES:
                yield from self._check(target, self._device(target) == _DEVICES[name], "files.hidden")
            elif target == "/dev" and wanted.dev and mount.kind == "tmpfs":
                own_user = self._runtime == BUBBLEWRAP_MOUNTS  # otherwise root owns it
                yield from self._check(target, not own_user or "ro" in mount.options, "files.write")
            elif target in self._runtime.files:
                yield from self._check(target, "ro" in mount.options, "files.write")
            elif "/sys" in self._runtime.folders and target.startswith("/sys/") and mount.kind in _VIRTUAL:
                continue  # kernel file systems; a policy covers all of /sys
            elif target not in self._runtime.folders or mount.kind not in _VIRTUAL:
                yield f"files.hidden: {target} is mounted ({mount.kind}), which is not specified"
            elif not target.startswith("/dev"):
                yield from self._check(target, "ro" in mount.options, "files.write")

    def _submounts(self, bind: Bind) -> Iterator[str]:
        """Targets of the mounts below a bind's source, except those that the sandbox covers with mounts of its own."""
        own = [*(["/proc"] if self._wanted.proc else []), *(["/dev"] if self._wanted.dev else [])]
        own += [*(folder.target for folder in self._wanted.tmpfs), *self._wanted.masked]
        real = os.path.realpath(bind.source).rstrip("/") + "/"
        for ours in self._ours:
            target = f"{bind.target.rstrip('/')}/{ours[len(real) :]}"
            if ours.startswith(real) and not any(_is_at_or_below(target, each) for each in own):
                yield target

    def _check_bind(self, bind: Bind) -> Iterator[str]:
        mount = self._mounts.get(bind.target)
        if mount is None or not self._sources.has(bind.source, os.stat(self._root + bind.target)):  # noqa: PTH116  likewise
            yield f"files.hidden: {bind.target} is not {bind.source} of this machine"
            return
        if not bind.writable and "ro" not in mount.options:
            yield f"files.write: {bind.target} can be written"
        if not (bind.executable or self._runtime.starts_from_binds or "noexec" in mount.options):
            yield f"files.run: programs can be started from {bind.target}"
        if not self._runtime.bind_options <= mount.options:
            yield f"privileges.none_gained: {bind.target} is mounted with {', '.join(sorted(mount.options))}"

    def _check_tmpfs(self, folder: Tmpfs) -> Iterator[str]:
        mount = self._mounts.get(folder.target)
        needed = {"rw", "nosuid", "nodev"} | (set[str]() if folder.executable else {"noexec"})
        if mount is None or mount.kind != "tmpfs" or not needed <= mount.options:
            has = "nothing" if mount is None else f"{mount.kind} {', '.join(sorted(mount.options))}"
            yield f"files.run: {folder.target} is mounted with {has}"
            return
        parts = (each.partition("=") for each in mount.settings.split(","))
        settings = {name: value for name, _, value in parts}
        size = int(settings.get("size", "0k").rstrip("k")) * _KIB
        if not 0 < size < folder.size + _PAGE or not 0 < int(settings.get("nr_inodes", "0")) <= folder.inodes:
            yield f"limits.disk: {folder.target} has {mount.settings}"

    def _check_masked(self, path: str) -> Iterator[str]:
        mount = self._mounts.get(path)
        if mount is None:
            there = os.path.lexists(self._root + path)
        else:
            there = not (mount.kind == "tmpfs" and "ro" in mount.options) and self._device(path) != _DEVICES["null"]
        if there:
            yield f"files.masked: {path} is not covered"

    def _shows_own_processes(self) -> bool:
        try:
            return bool(os.readlink(f"{self._root}/proc/self"))  # noqa: PTH115  the link exists only if the list includes us
        except FileNotFoundError:
            return False

    def _device(self, target: str) -> tuple[int, int] | None:
        seen = os.stat(self._root + target)  # noqa: PTH116  a Path drops a slash
        return (os.major(seen.st_rdev), os.minor(seen.st_rdev)) if stat.S_ISCHR(seen.st_mode) else None

    def _check(self, target: str, holds: bool, rule: str) -> Iterator[str]:  # noqa: FBT001  a condition
        if not holds:
            mount = self._mounts.get(target)
            yield f"{rule}: {target} is {'not mounted' if mount is None else f'{mount.kind} {sorted(mount.options)}'}"


def _parse(line: str) -> _Mount:
    before, _, after = line.partition(" - ")
    number, parent, _, _, target, options = before.split(" ")[:6]
    kind, _, settings = after.split(" ", 2)
    return _Mount(number, parent, _unescape(target), frozenset(options.split(",")), kind, settings)


def _unescape(path: str) -> str:
    """Decode a path: the kernel writes blanks and backslashes as octal escapes."""
    if "\\" not in path:
        return path
    raw = path.encode("utf-8", "surrogateescape").decode("unicode_escape").encode("latin-1")
    return raw.decode("utf-8", "surrogateescape")


def _visible(mounts: Iterable[_Mount]) -> dict[str, _Mount]:
    """The reachable mounts by target; a mount that another one covers is left out."""
    every = list(mounts)
    numbers = {each.number for each in every}
    below: dict[str, list[_Mount]] = {}
    for each in every:
        below.setdefault(each.parent, []).append(each)
    (root,) = [each for each in every if each.parent not in numbers]
    return {each.target: found for each in every if (found := _lookup(root, each.target, below)).target == each.target}


def _lookup(mount: _Mount, path: str, below: dict[str, list[_Mount]]) -> _Mount:
    """The mount in which the kernel's resolution of ``path`` ends."""
    while True:
        on_the_way = [each for each in below.get(mount.number, ()) if _is_at_or_below(path, each.target)]
        if not on_the_way:
            return mount
        mount = min(on_the_way, key=lambda each: len(each.target))


def _is_at_or_below(path: str, folder: str) -> bool:
    return folder in {path, "/"} or path.startswith(folder + "/")


def _our_mounts() -> list[str]:
    text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    return sorted({_unescape(line.split(" ", 5)[4]) for line in text.splitlines()})
