"""What one sandbox is made of, in plain values: whoever renders a policy makes one, whoever starts a sandbox obeys it.

What is not in here is never given: there is no file but those of ``binds``, ``links``, ``files`` and ``tmpfs``, no
variable but those of ``env``. Always so, and therefore no option: no capability is left in any set, no program can get
one (no_new_privs), it leads a session of its own, holds no descriptor but its three, and dies with whoever started it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from hermes_exec.errors import UsageError

MECHANISMS = frozenset({"seccomp", "landlock", "apparmor", "rlimits"})
NAMESPACES = frozenset({"user", "pid", "net", "ipc", "uts", "cgroup"})
_MANY = 1 << 40


def _check_path(path: str) -> None:
    parts = path.split("/")
    if not path.startswith("/") or "\0" in path or any(part in {".", ".."} for part in parts):
        raise UsageError(f"{path!r} is no absolute path without '..'")
    if path != "/" and "" in parts[1:]:
        raise UsageError(f"{path!r} has an empty part")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """A file or folder of the place outside that is seen inside; nosuid and nodev always."""

    source: str
    target: str
    writable: bool = False
    executable: bool = True
    """Whether programs on it can be started."""

    def __post_init__(self) -> None:
        """Refuse paths that are relative or climb."""
        _check_path(self.source)
        _check_path(self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tmpfs:
    """A new folder in memory; nosuid and nodev always."""

    target: str
    size: int
    """Bytes at most."""
    inodes: int
    """Files, folders and links at most, itself counted."""
    executable: bool = False
    mode: int = 0o700

    def __post_init__(self) -> None:
        """Refuse what would be no bound: to the kernel, 0 means none."""
        _check_path(self.target)
        if not (0 < self.size < _MANY and 0 < self.inodes < _MANY and 0 <= self.mode <= 0o1777):
            raise UsageError(f"the folder {self.target} needs a size and a number of inodes above 0, and a mode")


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRule:
    """What Landlock allows below a path: the kernel's bits LANDLOCK_ACCESS_FS_*."""

    path: str
    access: int
    needed: bool = True
    """Whether it has to be there; where it is not, nothing is allowed."""

    def __post_init__(self) -> None:
        """Refuse paths that are relative or climb."""
        _check_path(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortRule:
    """What Landlock allows with a TCP port: the kernel's bits LANDLOCK_ACCESS_NET_*."""

    port: int
    access: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Landlock:
    """Rules of Landlock, in the kernel's own bits.

    What is handled and not allowed by a rule is denied. Bits that the running kernel is too old for are left out.
    """

    handled_fs: int
    paths: tuple[PathRule, ...] = ()
    handled_net: int = 0
    ports: tuple[PortRule, ...] = ()
    scoped: int = 0
    """The bits LANDLOCK_SCOPE_*."""
    minimum_abi: int = 1
    """The oldest version of the kernel's interface with which it counts as applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is limited from outside, for the sandbox as a whole; None leaves a thing unlimited."""

    wall_s: float | None = None
    output: int | None = None
    """Bytes of both outputs together."""
    memory: int | None = None
    """Bytes."""
    processes: int | None = None
    cpu_s: float | None = None
    cpus: float | None = None
    """Processors that may be busy at once; where nothing can hold that, it is not held, and ``enforcers`` lacks it."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not 0 < value < _MANY:
                raise UsageError(f"{field.name}={value!r} is no limit", remedy="a number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """The launch specification of a sandbox; everything but the program that is started in it."""

    binds: tuple[Bind, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    """Symbolic links: their paths, and where they lead."""
    files: tuple[tuple[str, bytes], ...] = ()
    """Small read-only files, and what is in them."""
    tmpfs: tuple[Tmpfs, ...] = ()
    masked: tuple[str, ...] = ()
    """Paths that, where they exist, are covered by something empty."""
    proc: bool = True
    """Whether there is a /proc, of its own processes, or that of the place where it shares those of the place. Its
    settings of the kernel are read-only."""
    dev: bool = True
    """Whether there is a /dev with null, zero, full, random and urandom."""
    hostname: str = "sandbox"
    cwd: str = "/"
    env: tuple[tuple[str, str], ...] = ()
    """All variables that the program gets."""
    uid: int | None = None
    """The user to become, where it is started by root, inside and outside alike; the same one when None."""
    gid: int | None = None
    namespaces: frozenset[str] = NAMESPACES
    """Those of its own, beside the one of mounts."""
    seccomp: bytes = b""
    """A filter as the kernel takes it: an array of struct sock_filter, for this architecture."""
    filter_document: str = ""
    """The filter as the JSON of container engines, for those that load it themselves; ``seccomp`` is empty then."""
    landlock: Landlock | None = None
    apparmor: str = ""
    """The name of a loaded profile that the program is started under."""
    rlimits: tuple[tuple[str, int, int], ...] = ()
    """Of setrlimit(2): the name without its prefix in small letters, and its two bounds; -1 is none."""
    required: frozenset[str] = MECHANISMS
    """What of the mechanisms that are asked for may not be lacking, or nothing is started."""

    def __post_init__(self) -> None:
        """Refuse what cannot be made."""
        for path in (*(path for path, _ in self.links), *(path for path, _ in self.files), *self.masked, self.cwd):
            _check_path(path)
        for bind in self.binds:
            for folder in self.tmpfs:
                if (bind.target + "/").startswith(folder.target + "/"):
                    raise UsageError(f"{bind.target} would be hidden by the folder in memory {folder.target}")
        if self.masked and not self.dev:
            raise UsageError("paths are covered by a device, so a sandbox without /dev has none that are")
        if not self.namespaces <= NAMESPACES:
            raise UsageError(
                f"{sorted(self.namespaces)} are no namespaces to make", remedy=", ".join(sorted(NAMESPACES))
            )
        if not self.required <= MECHANISMS:
            raise UsageError(f"{sorted(self.required)} are no mechanisms", remedy=", ".join(sorted(MECHANISMS)))
        if any(not name or "=" in name or "\0" in name + value for name, value in self.env):
            raise UsageError("a variable has a name or a value that no program can be given")
        if len(self.seccomp) % 8:
            raise UsageError("the seccomp filter is no array of instructions of 8 bytes")

    @property
    def digest(self) -> str:
        """A SHA-256 of everything that is specified; alike for a twin that differs in its program alone."""
        return hashlib.sha256(_canonical(self)).hexdigest()


def _canonical(value: Any) -> bytes:
    """Every value with its kind and its length before it, so that no two specifications give the same bytes."""
    if is_dataclass(value):
        parts = [_canonical(field.name) + _canonical(getattr(value, field.name)) for field in fields(value)]
        return _framed(type(value).__name__, b"".join(parts))
    if isinstance(value, tuple):
        return _framed("tuple", b"".join(map(_canonical, value)))  # pyright: ignore[reportUnknownArgumentType]  any
    if isinstance(value, frozenset):
        return _framed("set", b"".join(sorted(map(_canonical, value))))  # pyright: ignore[reportUnknownArgumentType]  any
    if isinstance(value, bytes):
        return _framed("bytes", value)
    return _framed(type(value).__name__, str(value).encode("utf-8", "surrogateescape"))


def _framed(kind: str, data: bytes) -> bytes:
    return b"%s %d:%s" % (kind.encode(), len(data), data)
