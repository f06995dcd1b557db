"""File information, and the reports of transfers and syncs."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

Progress = Callable[[int, int, int, int], object]
"""Called with bytes done, bytes in all, files done and files in all."""


class Kind(StrEnum):
    """The type of a file."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"
    """A device, a named pipe or a socket."""

    @staticmethod
    def of(mode: int) -> Kind:
        """Return the kind in an ``st_mode``."""
        kinds = {stat.S_IFREG: Kind.FILE, stat.S_IFDIR: Kind.FOLDER, stat.S_IFLNK: Kind.LINK}
        return kinds.get(stat.S_IFMT(mode), Kind.OTHER)


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file, folder or link in the target."""

    path: str
    """As it was requested; names that are not UTF-8 have surrogates (``os.fsencode`` returns the bytes)."""
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
        """Whether it is a regular file."""
        return self.kind is Kind.FILE

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.kind is Kind.FOLDER


class FileList(list[FileInfo]):
    """A list of files that notebooks show as a table."""

    def _repr_html_(self) -> str:
        """Return the table."""
        import time

        from hermes_exec.notebook import format_table

        rows = [
            (
                each.path.encode("utf-8", "backslashreplace").decode() + (f" -> {each.target}" if each.target else ""),
                each.kind.value,
                f"{each.size:,}",
                stat.filemode(each.mode)[1:],
                time.strftime("%Y-%m-%d %H:%M", time.localtime(each.mtime_ns // 10**9)),
            )
            for each in self
        ]
        return format_table(("path", "kind", "bytes", "mode", "changed"), rows)


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """The file that a path leads to in the target."""

    path: str
    """Absolute and without links; empty where none leads to the file (it was deleted, or is in another namespace)."""
    source: str
    """The path within its file system: for a file below a bind mount, its path at the source of the mount."""
    links: int
    """How many names the file has (hard links)."""
    identity: str
    """Equal for two paths that lead to the same file."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """An entry that a transfer left out, and the reason."""

    path: str
    """Relative to the root of the transfer."""
    reason: str


@dataclass(frozen=True, slots=True)
class TransferReport:
    """The result of an upload or a download."""

    files: int
    """Files and links that arrived."""
    bytes: int
    """Their contents, sent now or, when an upload was resumed, earlier."""
    skipped: tuple[Skipped, ...] = ()
    """Devices, named pipes and sockets, and links that were left out on request."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change that a sync made, or would make."""

    path: str
    """Relative to the root."""
    action: str
    """``copy``, ``touch`` (mode and time alone) or ``delete``."""


@dataclass(frozen=True, slots=True)
class SyncReport:
    """The result of a sync, or of a dry run. Folders are counted only where they are deleted."""

    copied: int
    """Files and links whose content was transferred."""
    deleted: int
    """Files, links and folders removed."""
    unchanged: int
    """Files and links that were the same already."""
    bytes: int
    """Bytes of content that were transferred."""
    touched: int = 0
    """Files with the right content whose mode or time was set."""
    changes: tuple[Change, ...] = ()
    """Each change, in the order of the tree."""
    skipped: tuple[Skipped, ...] = ()
    """Entries that were left out: devices, named pipes, sockets, and links on request."""
