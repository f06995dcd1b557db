"""The specification of one sandbox, in plain values: policies render to it, and backends apply it.

A sandbox has nothing that is not listed here: no file but those of ``binds``, ``links``, ``files`` and ``tmpfs``, no
variable but those of ``env``. Some properties always hold: all capability sets are empty, no program
can gain privileges (no_new_privs), the program leads its own session, has only three descriptors, and ends with the
process that started it.
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
        raise UsageError(f"{path!r} is not an absolute path without '..'")
    if path != "/" and "" in parts[1:]:
        raise UsageError(f"{path!r} has an empty part")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """A file or folder outside that is mounted inside, always nosuid and nodev."""

    source: str
    target: str
    writable: bool = False
    executable: bool = True
    """Whether programs on it can be executed."""

    def __post_init__(self) -> None:
        """Refuse paths that are relative or climb."""
        _check_path(self.source)
        _check_path(self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tmpfs:
    """A new folder in memory, always nosuid and nodev."""

    target: str
    size: int
    """Maximum number of bytes."""
    inodes: int
    """Maximum number of files, folders and links, including itself."""
    executable: bool = False
    mode: int = 0o700

    def __post_init__(self) -> None:
        """Refuse values that set no limit: for the kernel, 0 means unlimited."""
        _check_path(self.target)
        if not (0 < self.size < _MANY and 0 < self.inodes < _MANY and 0 <= self.mode <= 0o1777):
            raise UsageError(f"the folder {self.target} needs a size and a number of inodes above 0, and a mode")


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRule:
    """The access that Landlock allows below a path, as bits LANDLOCK_ACCESS_FS_*."""

    path: str
    access: int
    needed: bool = True
    """Whether a missing path is an error; otherwise its rule is left out."""

    def __post_init__(self) -> None:
        """Refuse paths that are relative or climb."""
        _check_path(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortRule:
    """The access that Landlock allows for a TCP port, as bits LANDLOCK_ACCESS_NET_*."""

    port: int
    access: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Landlock:
    """A Landlock ruleset, in the kernel's bits.

    Handled access that no rule allows is denied. Bits that the running kernel does not know are left out.
    """

    handled_fs: int
    paths: tuple[PathRule, ...] = ()
    handled_net: int = 0
    ports: tuple[PortRule, ...] = ()
    scoped: int = 0
    """The bits LANDLOCK_SCOPE_*."""
    minimum_abi: int = 1
    """The oldest ABI version with which the ruleset counts as applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the sandbox as a whole, enforced from outside; None is unlimited."""

    wall_s: float | None = None
    output: int | None = None
    """Bytes of standard output and standard error together."""
    memory: int | None = None
    """Bytes."""
    processes: int | None = None
    cpu_s: float | None = None
    cpus: float | None = None
    """Processors that may be busy at once. Not enforced without a control group; ``enforcers`` lacks it then."""

    def __post_init__(self) -> None:
        """Refuse values that are not limits."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not 0 < value < _MANY:
                raise UsageError(f"{field.name}={value!r} is not a limit", remedy="a number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """The launch specification of a sandbox: everything except the program.

    The names of these classes and fields are part of ``digest``, which proofs store.
    """

    binds: tuple[Bind, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    """Symbolic links: paths and targets."""
    files: tuple[tuple[str, bytes], ...] = ()
    """Small read-only files: paths and contents."""
    tmpfs: tuple[Tmpfs, ...] = ()
    masked: tuple[str, ...] = ()
    """Paths that, if they exist, are covered by an empty file or folder."""
    proc: bool = True
    """Whether there is a /proc, of its own processes or, without a pid namespace, that of the outside. Its kernel
    settings are read-only."""
    dev: bool = True
    """Whether there is a /dev with null, zero, full, random and urandom."""
    hostname: str = "sandbox"
    cwd: str = "/"
    env: tuple[tuple[str, str], ...] = ()
    """The complete environment of the program."""
    uid: int | None = None
    """The user to become if root starts it, inside and outside; None keeps the user."""
    gid: int | None = None
    namespaces: frozenset[str] = NAMESPACES
    """Its own namespaces, besides the mount namespace."""
    seccomp: bytes = b""
    """A BPF filter for this architecture: an array of struct sock_filter."""
    filter_document: str = ""
    """The filter as the JSON of container engines, which load it themselves; ``seccomp`` is empty then."""
    landlock: Landlock | None = None
    apparmor: str = ""
    """The name of the loaded AppArmor profile of the program."""
    rlimits: tuple[tuple[str, int, int], ...] = ()
    """Limits of setrlimit(2): the lower-case name without its prefix, soft and hard limit; -1 is unlimited."""
    required: frozenset[str] = MECHANISMS
    """The mechanisms without which nothing is started."""

    def __post_init__(self) -> None:
        """Refuse contradictory values."""
        for path in (*(path for path, _ in self.links), *(path for path, _ in self.files), *self.masked, self.cwd):
            _check_path(path)
        for bind in self.binds:
            for folder in self.tmpfs:
                if (bind.target + "/").startswith(folder.target + "/"):
                    raise UsageError(f"{bind.target} would be hidden by the tmpfs folder {folder.target}")
        if self.masked and not self.dev:
            raise UsageError("masked paths are covered by a device, so they need a sandbox with /dev")
        if not self.namespaces <= NAMESPACES:
            raise UsageError(f"unknown namespace in {sorted(self.namespaces)}", remedy=", ".join(sorted(NAMESPACES)))
        if not self.required <= MECHANISMS:
            raise UsageError(f"unknown mechanism in {sorted(self.required)}", remedy=", ".join(sorted(MECHANISMS)))
        if any(not name or "=" in name or "\0" in name + value for name, value in self.env):
            raise UsageError("the name or the value of an environment variable is invalid")
        if len(self.seccomp) % 8:
            raise UsageError("the seccomp filter is not an array of 8-byte instructions")

    @property
    def digest(self) -> str:
        """A SHA-256 of the whole specification; equal for sandboxes that differ only in their program."""
        return hashlib.sha256(_canonical(self)).hexdigest()


def _canonical(value: Any) -> bytes:
    """Encode a value after its type and length, so that different specifications have different encodings."""
    if is_dataclass(value):
        parts = [_canonical(field.name) + _canonical(getattr(value, field.name)) for field in fields(value)]
        return _frame(type(value).__name__, b"".join(parts))
    if isinstance(value, tuple):
        return _frame("tuple", b"".join(map(_canonical, value)))  # pyright: ignore[reportUnknownArgumentType]  any
    if isinstance(value, frozenset):
        return _frame("set", b"".join(sorted(map(_canonical, value))))  # pyright: ignore[reportUnknownArgumentType]  any
    if isinstance(value, bytes):
        return _frame("bytes", value)
    return _frame(type(value).__name__, str(value).encode("utf-8", "surrogateescape"))


def _frame(kind: str, data: bytes) -> bytes:
    return b"%s %d:%s" % (kind.encode(), len(data), data)
