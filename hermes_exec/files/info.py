"""What is told about files, and about what a transfer did."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

Progress = Callable[[int, int, int, int], object]
"""Called with bytes done, bytes in all, files done and files in all."""


class Kind(StrEnum):
    """What a name stands for."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"
    """A device, a named pipe or a socket."""

    @staticmethod
    def of(mode: int) -> Kind:
        """The kind in an ``st_mode``."""
        kinds = {stat.S_IFREG: Kind.FILE, stat.S_IFDIR: Kind.FOLDER, stat.S_IFLNK: Kind.LINK}
        return kinds.get(stat.S_IFMT(mode), Kind.OTHER)


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file, folder or link in the place."""

    path: str
    """As it was asked for; names that are not UTF-8 have surrogates (``os.fsencode`` gives the bytes)."""
    kind: Kind
    size: int
    """Bytes."""
    mode: int
    """Permission bits, with setuid, setgid and sticky."""
    mtime_ns: int
    uid: int
    gid: int
    target: str | None = None
    """Where a link leads."""

    @property
    def is_file(self) -> bool:
        """True for a regular file."""
        return self.kind is Kind.FILE

    @property
    def is_folder(self) -> bool:
        """True for a folder."""
        return self.kind is Kind.FOLDER


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """Where a path leads in the place."""

    path: str
    """Absolute and without links; empty where none leads to the file (it was deleted, or is in another namespace)."""
    source: str
    """The path in the file system that it is on: for what is below a bind mount, where that was taken from."""
    links: int
    """How many names the file has (hard links)."""
    identity: str
    """Equal for two paths that lead to the same file."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that a transfer left out, and why."""

    path: str
    """Relative to the root of the transfer."""
    reason: str


@dataclass(frozen=True, slots=True)
class TransferReport:
    """What an upload or a download did."""

    files: int
    """Files and links that arrived."""
    bytes: int
    """Their contents, sent now or, when an upload was resumed, earlier."""
    skipped: tuple[Skipped, ...] = ()
    """Devices, named pipes and sockets, and links that were left out on request."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that a sync did, or would do."""

    path: str
    """Relative to the root."""
    action: str
    """``copy``, ``touch`` (mode and time alone) or ``delete``."""


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a sync did, or would do (``dry_run``). Folders are counted only where they are deleted."""

    copied: int
    """Files and links whose content went over."""
    deleted: int
    """Files, links and folders removed."""
    unchanged: int
    """Files and links that were the same already."""
    bytes: int
    """Content that went over."""
    touched: int = 0
    """Files with the right content whose mode or time was set."""
    changes: tuple[Change, ...] = ()
    """Each of them, in the order of the tree."""
    skipped: tuple[Skipped, ...] = ()
    """What was left out: devices, named pipes, sockets, and links on request."""
