"""The content of a tree, packed: equal trees on both sides give equal bytes, folder by folder."""

import errno
import os
import stat
import struct

from .safe_paths import PERMISSIONS, READ, PathWalker, check_name, names_in, open_folder, sha256, unlink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from .ignore_patterns import Ignore

BLOCK = struct.Struct(">IIII")
"""One folder: length of its path, length of its names, entries, entries that are not folders."""
RECORD = struct.Struct(">HQq")
"""File type and permissions, size, mtime in ns; only files have the last two. Type 0 is a folder that could not be
read, with the errno as its size."""
_PART = 64 << 10
_READ = 1 << 20


def scan(root: int, ignore: "Ignore") -> "Iterator[bytes]":
    """Yield blocks for every folder below ``root``, in parts worth sending. The caller keeps ``root``."""
    parts: "list[bytes]" = []
    size = 0
    waiting = [(root, b"", _Level(root, b"", ignore))]
    try:
        while waiting:
            folder, path, level = waiting[-1]
            if level.block:
                parts.append(level.block)
                size += len(level.block)
                level.block = b""
            if size >= _PART:
                yield b"".join(parts)
                parts = []
                size = 0
            if level.folders:
                name = level.folders.pop()
                inner = path + b"/" + name if path else name
                try:
                    opened = open_folder(name, folder)
                except OSError as error:
                    parts.append(_unreadable(inner, error))
                else:
                    waiting.append((opened, inner, _Level(opened, inner, ignore)))
            else:
                waiting.pop()
                if waiting:
                    os.close(folder)
    finally:
        for folder, _, _ in waiting[1:]:
            os.close(folder)
    yield b"".join(parts)


def _unreadable(path: bytes, error: OSError) -> bytes:
    return BLOCK.pack(len(path), 0, 1, 0) + path + RECORD.pack(0, error.errno or 0, 0)


class _Level:
    """One folder's block, and its folders that are still to be scanned."""

    __slots__ = ("block", "folders")

    def __init__(self, folder: int, path: bytes, ignore: "Ignore") -> None:
        self.folders: "list[bytes]" = []
        try:
            self.block = self._pack(folder, path, ignore)
        except OSError as error:
            self.block = _unreadable(path, error)

    def _pack(self, folder: int, path: bytes, ignore: "Ignore") -> bytes:
        names: "list[bytes]" = []
        records: "list[bytes]" = []
        pack = RECORD.pack
        prefix = path + b"/" if path else b""
        for name in names_in(folder):
            try:
                info = os.stat(name, dir_fd=folder, follow_symlinks=False)
                kind = stat.S_IFMT(info.st_mode)
                if ignore and ignore.ignores(prefix + name, kind == stat.S_IFDIR):
                    continue
                if kind == stat.S_IFREG:
                    records.append(pack(info.st_mode & (kind | PERMISSIONS), info.st_size, info.st_mtime_ns))
                elif kind == stat.S_IFDIR:
                    self.folders.append(name)
                    records.append(pack(info.st_mode & (kind | PERMISSIONS), 0, 0))
                else:
                    target = os.readlink(name, dir_fd=folder) if kind == stat.S_IFLNK else None
                    names.append(name if target is None else name + b"/" + os.fsencode(target))
                    records.append(pack(kind, 0, 0))
                    continue
            except FileNotFoundError:
                continue  # it vanished
            names.append(name)
        self.folders.reverse()
        joined = b"\0".join(names)
        head = BLOCK.pack(len(path), len(joined), len(names), len(names) - len(self.folders))
        return b"".join([head, path, joined, *records])


def measure(root: int, ignore: "Ignore") -> "tuple[int, int]":
    """Return the number of files below ``root``, and of their bytes."""
    files = size = 0
    for part in scan(root, ignore):
        at = 0
        while at < len(part):
            path, names, count, plain = BLOCK.unpack_from(part, at)
            start = at + BLOCK.size + path + names
            at = start + count * RECORD.size
            files += plain
            size += sum(record[1] for record in RECORD.iter_unpack(part[start:at]) if record[0])
    return files, size


def hashes(root: int, paths: "list[bytes]") -> "Iterator[bytes]":
    """Yield the SHA-256 of each file below ``root``; empty where it cannot be read as a file."""
    way = PathWalker(root)
    try:
        for path in paths:
            *folders, name = path.split(b"/")
            try:
                fd = os.open(name, READ, dir_fd=way.folder(folders))
                try:
                    yield digest_of(fd) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
                finally:
                    os.close(fd)
            except OSError:
                yield b""
    finally:
        way.close()


def digest_of(fd: int) -> bytes:
    """Return the SHA-256 of a file from its current position on."""
    digest = sha256()
    data = os.read(fd, _READ)
    while data:
        digest.update(data)
        data = os.read(fd, _READ)
    return bytes(digest.digest())


def prune(root: int, paths: "list[bytes]") -> int:
    """Remove these paths below ``root``, each after its content; return how many were removed.

    A missing path is not an error, and a folder that still has content (ignored files) stays.
    """
    way = PathWalker(root)
    removed = 0
    try:
        for path in paths:
            *folders, name = path.split(b"/")
            check_name(name)
            try:
                folder = way.folder(folders)
                if not unlink(name, folder):
                    os.rmdir(name, dir_fd=folder)
                removed += 1
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    error.filename = path
                    raise
    finally:
        way.close()
    return removed
