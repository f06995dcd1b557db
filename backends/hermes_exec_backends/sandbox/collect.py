"""Copy the files that an untrusted program has written: only regular files and folders, bounded, following no link.

Files are copied after the sandbox has ended, from folders that were opened before the program began. So nothing changes
while it is read, and no path of the program decides where we read or write.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_exec.errors import TransferError

if TYPE_CHECKING:
    from pathlib import Path

_PIECE = 1 << 20
_DEEPEST = 64
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class Collected:
    """Counts of the copied files, and the entries that were skipped."""

    files: int = 0
    folders: int = 0
    bytes: int = 0
    left: list[str] = field(default_factory=list[str])
    """Links, sockets, pipes and devices, as ``PATH: KIND``; they are not copied."""


def collect(source: int, into: Path, *, max_bytes: int, max_files: int) -> Collected:
    """Copy the contents of the folder ``source`` (a descriptor) to the new folder ``into``.

    Copied files get mode 0600 and folders 0700; set-user-ID bits and owners are not copied.

    Raises:
        TransferError: the contents exceed the bounds, or reading or writing failed; ``into`` may hold a part of them.
    """
    into.mkdir(mode=0o700)
    target = os.open(into, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        taken = Collected()
        _Copy(taken, max_bytes, max_files).folder(source, target, "", 0)
    except OSError as error:
        if isinstance(error, TransferError):
            raise
        raise TransferError(f"collecting files: {error}", code=error.errno or 0) from error
    finally:
        os.close(target)
    return taken


class _Copy:
    def __init__(self, taken: Collected, max_bytes: int, max_files: int) -> None:
        self._taken = taken
        self._max_bytes = max_bytes
        self._max_files = max_files

    def folder(self, source: int, target: int, path: str, depth: int) -> None:
        if depth > _DEEPEST:
            raise TransferError(f"collecting files: {path[:100]!r}… is deeper than {_DEEPEST} folders")
        with os.scandir(source) as entries:
            names = sorted(entry.name for entry in entries)
        for name in names:
            self._entry(source, target, name, f"{path}/{name}" if path else name, depth)

    def _entry(self, source: int, target: int, name: str, path: str, depth: int) -> None:
        mode = os.stat(name, dir_fd=source, follow_symlinks=False).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            self._leave(f"{path}: {_kind(mode)}")
            return
        if self._taken.files + self._taken.folders >= self._max_files:
            raise TransferError(f"collecting files: there are more than {self._max_files} files and folders")
        fd = _open(source, name, mode)
        try:
            if stat.S_ISDIR(mode):
                self._taken.folders += 1
                os.mkdir(name, 0o700, dir_fd=target)
                below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=target)
                try:
                    self.folder(fd, below, path, depth + 1)
                finally:
                    os.close(below)
            else:
                self._taken.files += 1
                self._file(fd, target, name)
        finally:
            os.close(fd)

    def _file(self, source: int, target: int, name: str) -> None:
        made = os.open(name, _NEW, 0o600, dir_fd=target)
        try:
            while piece := os.read(source, _PIECE):
                self._taken.bytes += len(piece)
                if self._taken.bytes > self._max_bytes:
                    raise TransferError(f"collecting files: there is more than {self._max_bytes} bytes")
                view = memoryview(piece)
                while view:
                    view = view[os.write(made, view) :]
        finally:
            os.close(made)

    def _leave(self, what: str) -> None:
        self._taken.left.append(what)
        if len(self._taken.left) > self._max_files:
            raise TransferError(f"collecting files: there are more than {self._max_files} links, pipes and sockets")


def _open(folder: int, name: str, mode: int) -> int:
    """Open a file or folder, even if the program removed its owner's permissions."""
    try:
        return os.open(name, _OPEN, dir_fd=folder)
    except PermissionError:
        os.chmod(name, stat.S_IMODE(mode) | 0o700, dir_fd=folder)  # no process is left that could replace it by a link
        return os.open(name, _OPEN, dir_fd=folder)


def _kind(mode: int) -> str:
    kinds = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")
