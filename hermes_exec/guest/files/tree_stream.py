"""A tree as one stream of blocks, the same on both sides: the format, and the sender.

Many small files share one block, which is hashed as a whole; a large file has blocks of its own, with its hash at
the end. Entries mean "into this folder", "this name", "back up", so that the format cannot express a path, only
names one below the other. docs/files.md describes the format.
"""

import os
import stat
import struct

from .safe_paths import CHUNK, PERMISSIONS, READ, names_in, open_folder, read_up_to, sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Iterator

    from .ignore_patterns import Ignore

BATCH, DATA, FILE_END, END = range(1, 5)
HEAD = struct.Struct(">BI")
"""Kind of block, and number of bytes that follow."""
COUNTS = struct.Struct(">II")
"""In a batch, after its hash: number of entries, and bytes of their names."""
ENTRY = struct.Struct(">BHqQ")
"""Kind of entry, mode, mtime in ns, size (bytes of content in the batch; for a large file an estimate)."""
TOTALS = struct.Struct(">QQ")
"""In the last block: number of files and of bytes."""
FILE, LARGE, LINK, FOLDER, LEAVE, META, SKIP, ROOT = range(8)
SPECIAL, UNREADABLE = range(2)
"""The reason why an entry was skipped, in its mode; an unreadable one has its errno as size."""
INLINE = 128 << 10
"""Size of the largest file that shares a block."""
MAX_BLOCK = 2 << 20
DIGEST = 32
NO_DIGEST = b"\0" * DIGEST
_TYPE = stat.S_IFMT(0xFFFF)
_FULL = 128 << 10
_MANY = 1000
COPY, TOUCH = b"+", b"="
"""In a plan, before the path: send the whole file, or only its mode and time."""


class TreeSender:
    """A generator of the blocks. ``files`` and ``bytes`` are its progress; ``close`` it at the end."""

    def __init__(self, root: int, verify: bool) -> None:
        """Send the content of ``root``, an open folder that the sender owns from now on."""
        self.files = 0
        self.bytes = 0
        self._verify = verify
        self._folders = [root]
        self._names: "list[bytes]" = []
        self._entries: "list[bytes]" = []
        self._entry_names: "list[bytes]" = []
        self._contents: "list[bytes]" = []
        self._size = 0
        self._large = -1
        self._large_start = b""
        info = os.fstat(root)
        self._add(ROOT, info.st_mode & PERMISSIONS, info.st_mtime_ns, 0, b"")

    def close(self) -> None:
        """Close all open descriptors."""
        if self._large >= 0:
            os.close(self._large)
            self._large = -1
        while self._folders:
            os.close(self._folders.pop())

    def walk(self, ignore: "Ignore") -> "Iterator[bytes]":
        """Yield the blocks of all that is not ignored; in each folder, its files come before its folders."""
        waiting: "list[tuple[list[bytes], list[bytes]]]" = [(self._listing(), [])]
        while waiting:
            names, folders = waiting[-1]
            if names:
                name = names.pop()
                if self._put(name, COPY, ignore):
                    folders.append(name)
            elif folders:
                if self._enter(folders.pop(0)):
                    waiting.append((self._listing(), []))
            else:
                waiting.pop()
                if waiting:
                    self._leave()
            if self._size >= _FULL or len(self._entries) >= _MANY or self._large >= 0:
                yield from self._flush()
        yield from self._end()

    def _listing(self) -> "list[bytes]":
        """Return the names in the current folder in reverse order."""
        try:
            return names_in(self._folders[-1])[::-1]
        except OSError as error:
            self._add(SKIP, UNREADABLE, 0, error.errno or 0, b".")
            return []

    def send_plan(self, plan: "Iterable[bytes]") -> "Iterator[bytes]":
        """Yield the blocks of these paths alone, each preceded by COPY or TOUCH, grouped by folder."""
        for step in plan:
            *folders, name = step[1:].split(b"/")
            if self._go(folders) and self._put(name, step[:1]):
                self._enter(name)
            if self._size >= _FULL or len(self._entries) >= _MANY or self._large >= 0:
                yield from self._flush()
        yield from self._end()

    def _go(self, names: "list[bytes]") -> bool:
        """Move to the folder at ``names``; return False if it no longer exists."""
        same = 0
        while same < min(len(names), len(self._names)) and names[same] == self._names[same]:
            same += 1
        while len(self._names) > same:
            self._leave()
        return all(self._enter(name) for name in names[same:])

    def _enter(self, name: bytes) -> bool:
        """Enter a folder of the current one; return False if that is impossible."""
        try:
            fd = open_folder(name, self._folders[-1])
        except OSError as error:
            self._record_failure(name, error)
            return False
        info = os.fstat(fd)
        self._folders.append(fd)
        self._names.append(name)
        self._add(FOLDER, info.st_mode & PERMISSIONS, info.st_mtime_ns, 0, name)
        return True

    def _record_failure(self, name: bytes, error: OSError) -> None:
        """Record a name as skipped; one that vanished is left out without a record."""
        if not isinstance(error, FileNotFoundError):
            self._add(SKIP, UNREADABLE, 0, error.errno or 0, name)

    def _leave(self) -> None:
        self._names.pop()
        os.close(self._folders.pop())
        self._add(LEAVE, 0, 0, 0, b"")

    def _put(self, name: bytes, action: bytes, ignore: "Ignore | None" = None) -> bool:
        """Add one name of the current folder; return whether it is a folder, which is not added."""
        folder = self._folders[-1]
        try:
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
            kind = info.st_mode & _TYPE
            if ignore and ignore.ignores(b"/".join([*self._names, name]), kind == stat.S_IFDIR):
                return False
            if kind == stat.S_IFDIR:
                return True
            if kind == stat.S_IFREG and action == COPY:
                self._file(name, folder, info)
            elif kind == stat.S_IFREG:
                self._add(META, info.st_mode & PERMISSIONS, info.st_mtime_ns, 0, name)
            elif kind == stat.S_IFLNK:
                target = os.fsencode(os.readlink(name, dir_fd=folder))
                self._add(LINK, 0, info.st_mtime_ns, len(target), name)
                self._contents.append(target)
                self._size += len(target)
                self.files += 1
            else:
                self._add(SKIP, SPECIAL, 0, 0, name)
        except OSError as error:
            self._record_failure(name, error)
        return False

    def _file(self, name: bytes, folder: int, info: os.stat_result) -> None:
        size = info.st_size
        mode = info.st_mode & PERMISSIONS
        fd = os.open(name, READ, dir_fd=folder)
        try:
            content = b"" if size > INLINE else os.read(fd, size + 1)
            if size > INLINE or len(content) > size:
                self._add(LARGE, mode, info.st_mtime_ns, size, name)
                self._large, fd = fd, -1
                self._large_start = content
                return
        finally:
            if fd >= 0:
                os.close(fd)
        self._add(FILE, mode, info.st_mtime_ns, len(content), name)
        self._contents.append(content)
        self._size += len(content)
        self.files += 1
        self.bytes += len(content)

    def _add(self, kind: int, mode: int, mtime: int, size: int, name: bytes) -> None:
        self._entries.append(ENTRY.pack(kind, mode, mtime, size))
        self._entry_names.append(name)

    def _flush(self) -> "Iterator[bytes]":
        """Yield the current batch, and the large file that ends it."""
        if not self._entries:
            return
        names = b"\0".join(self._entry_names)
        counts = COUNTS.pack(len(self._entries), len(names))
        payload = b"".join([counts, *self._entries, names, *self._contents])
        digest = self._digest(payload)
        self._entries = []
        self._entry_names = []
        self._contents = []
        self._size = 0
        yield b"".join((HEAD.pack(BATCH, DIGEST + len(payload)), digest, payload))
        if self._large >= 0:
            yield from self._large_file()

    def _digest(self, payload: bytes) -> bytes:
        if not self._verify:
            return NO_DIGEST
        digest = sha256()
        digest.update(payload)
        return bytes(digest.digest())

    def _large_file(self) -> "Iterator[bytes]":
        digest = sha256() if self._verify else None
        data = self._large_start or read_up_to(self._large, CHUNK)
        while data:
            if digest is not None:
                digest.update(data)
            self.bytes += len(data)
            yield HEAD.pack(DATA, len(data)) + data
            data = read_up_to(self._large, CHUNK)
        os.close(self._large)
        self._large = -1
        self.files += 1
        end = NO_DIGEST if digest is None else digest.digest()
        yield HEAD.pack(FILE_END, DIGEST) + end

    def _end(self) -> "Iterator[bytes]":
        while len(self._folders) > 1:
            self._leave()
        yield from self._flush()
        yield HEAD.pack(END, TOTALS.size) + TOTALS.pack(self.files, self.bytes)
