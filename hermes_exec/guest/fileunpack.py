"""The receiver of a tree: writes the blocks of ``filetree`` below a root, and nothing anywhere else.

The sender is not trusted. A name is one component, a link is never followed, and each file is written
beside its place and renamed into it, so at any moment there is the old one or the new one, whole.
"""

import os
import stat

from . import filetree
from .filesafe import NEW, PERMISSIONS, Refused, check_name, fold, leads_out, open_folder, sha256, write_all
from .filetree import DIGEST, ENTRY, HEAD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TEMPORARY = b".hx-"
"""How the names of unfinished files begin."""
_TOLD = 1000
"""Entries left out that are told one by one."""


class Folder:
    """A folder that is being filled: its descriptor, its path, its time and mode for the end."""

    __slots__ = ("fd", "mode", "mtime", "path", "seen")

    def __init__(self, fd: int, path: bytes, mode: "int | None", mtime: int) -> None:
        self.fd = fd
        self.path = path
        self.mode = mode
        self.mtime = mtime
        self.seen: "dict[bytes | str, bytes]" = {}


class Receiver:
    """Takes a stream in pieces of any size. ``finish`` it when all has come; ``close`` it in any case."""

    def __init__(self, root: int, fresh: bool, verify: bool, keep_outside: bool) -> None:
        """Write below ``root``, an open folder, the receiver's from here on; ``fresh`` if it is a new one.

        ``keep_outside`` makes links whose targets may be outside of the tree, instead of leaving them out.
        """
        self.files = 0
        self.bytes = 0
        self.outside: "list[list[bytes]]" = []
        self.skipped: "list[list[Any]]" = []
        self._fresh = fresh
        self._verify = verify
        self._keep_outside = keep_outside
        self._folders = [Folder(root, b"", None, 0)]
        self._temporary = TEMPORARY + os.urandom(6).hex().encode()
        self._held: "list[bytes]" = []
        self._held_size = 0
        self._need = HEAD.size
        self._left = 0  # bytes of the present data block
        self._large: "tuple[int, int, int, bytes] | None" = None
        self._digest: "Any" = None
        self._ended = False

    def close(self) -> None:
        """Close what is open and remove what is unfinished."""
        if self._large is not None:
            os.close(self._large[0])
            self._large = None
            self._drop()
        while self._folders:
            os.close(self._folders.pop().fd)

    def finish(self) -> None:
        """The stream is at its end; raises Refused when it came to it too early."""
        if not self._ended or self._held_size:
            raise Refused("the stream broke off")

    def feed(self, data: bytes) -> None:
        """Take bytes as they came.

        Raises:
            Refused: they are no honest tree. OSError: this system failed, with the path as filename.
        """
        if self._held_size:
            self._held.append(data)
            self._held_size += len(data)
            if self._held_size < self._need:
                return
            data = b"".join(self._held)
            self._held = []
            self._held_size = 0
        view = memoryview(data)
        at = 0
        end = len(data)
        while at < end:
            if self._left:
                piece = view[at : at + self._left]
                self._left -= len(piece)
                at += len(piece)
                self._data(piece)
                continue
            if end - at < HEAD.size:
                self._need = HEAD.size
                break
            kind, size = HEAD.unpack_from(data, at)
            if kind == filetree.DATA:
                self._left = size
                at += HEAD.size
                continue
            if size > filetree.MAX_BLOCK:
                raise Refused("a block of {} bytes".format(size))
            self._need = HEAD.size + size
            if end - at < self._need:
                break
            self._block(kind, view[at + HEAD.size : at + self._need])
            at += self._need
        if at < end:
            self._held = [bytes(view[at:])]
            self._held_size = end - at

    def _block(self, kind: int, payload: memoryview) -> None:
        if self._ended or (self._large is None) != (kind != filetree.FILE_END):
            raise Refused("a block of kind {} out of turn".format(kind))
        if kind == filetree.BATCH:
            if self._verify:
                digest = sha256()
                digest.update(payload[DIGEST:])
                self._compare(digest, payload[:DIGEST])
            self._batch(payload[DIGEST:])
        elif kind == filetree.FILE_END:
            if self._verify:
                self._compare(self._digest, payload)
            self._complete()
        elif kind == filetree.END:
            totals = filetree.TOTALS.unpack(payload)
            if len(self._folders) != 1 or totals != (self.files, self.bytes):
                raise Refused("the totals do not agree")
            self._leave_root()
            self._ended = True
        else:
            raise Refused("a block of kind {}".format(kind))

    @staticmethod
    def _compare(digest: "Any", told: memoryview) -> None:
        if digest.digest() != told:
            raise Refused("the content does not have the hash that was sent with it")

    def _batch(self, payload: memoryview) -> None:
        count, size = filetree.COUNTS.unpack_from(payload, 0)
        start = filetree.COUNTS.size
        at = start + count * ENTRY.size
        names = bytes(payload[at : at + size]).split(b"\0")
        at += size
        if at > len(payload) or len(names) != count:
            raise Refused("a batch whose parts do not fit")
        name = b""
        try:
            for entry, name in zip(ENTRY.iter_unpack(payload[start : start + count * ENTRY.size]), names):
                kind, mode, mtime, length = entry
                if kind in (filetree.FILE, filetree.LINK):
                    content = payload[at : at + length]
                    at += length
                    if at > len(payload):
                        raise Refused("content that is cut short")
                    self._take(name)
                    if kind == filetree.FILE:
                        self._file(name, mode, mtime, content)
                    else:
                        self._link(name, mtime, bytes(content))
                else:
                    self._other(kind, mode, mtime, length, name)
        except OSError as error:
            error.filename = self._path(name)
            raise
        if at != len(payload):
            raise Refused("bytes after a batch")

    def _path(self, name: bytes) -> bytes:
        path = self._folders[-1].path
        return path if name in (b"", b".") else path + b"/" + name if path else name

    def _take(self, name: bytes) -> None:
        """Refuse a name that is not plain, or that was sent before for the same file."""
        check_name(name)
        if self._large is not None:
            raise Refused("an entry in the middle of a large file")
        folder = self._folders[-1]
        key = fold(name)
        earlier = folder.seen.setdefault(key, name)
        if earlier is not name and (earlier == name or self._same(earlier, name)):
            raise Refused("{!r} was sent twice".format(self._path(name)))

    def _same(self, earlier: bytes, name: bytes) -> bool:
        """Whether this file system takes two spellings for one file."""
        folder = self._folders[-1].fd
        try:
            first = os.stat(earlier, dir_fd=folder, follow_symlinks=False)
            second = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(first, second)

    def _other(self, kind: int, mode: int, mtime: int, size: int, name: bytes) -> None:
        if kind == filetree.FOLDER:
            self._take(name)
            self._enter(name, mode, mtime)
        elif kind == filetree.LEAVE and len(self._folders) > 1:
            self._leave()
        elif kind == filetree.LARGE:
            self._take(name)
            fd = os.open(self._temporary, NEW, 0o600, dir_fd=self._folders[-1].fd)
            self._large = (fd, mode, mtime, name)
            self._digest = sha256()
        elif kind == filetree.META:
            self._take(name)
            self._touch(name, mode, mtime)
        elif kind == filetree.SKIP:
            if len(self.skipped) < _TOLD:
                self.skipped.append([self._path(name), mode, size])
        elif kind == filetree.ROOT and self._folders[-1].mode is None and len(self._folders) == 1:
            self._folders[0].mode = mode & PERMISSIONS
            self._folders[0].mtime = mtime
        else:
            raise Refused("an entry of kind {}".format(kind))

    def _enter(self, name: bytes, mode: int, mtime: int) -> None:
        folder = self._folders[-1].fd
        try:
            os.mkdir(name, 0o700, dir_fd=folder)
        except FileExistsError:
            pass
        fd = open_folder(name, folder)
        self._folders.append(Folder(fd, self._path(name), mode & PERMISSIONS, mtime))

    def _leave(self) -> None:
        folder = self._folders.pop()
        try:
            self._settle(folder)
        finally:
            os.close(folder.fd)

    def _leave_root(self) -> None:
        if self._fresh and self._folders[0].mode is not None:
            self._settle(self._folders[0])

    @staticmethod
    def _settle(folder: Folder) -> None:
        """All is in it: its own mode and time."""
        os.fchmod(folder.fd, folder.mode or 0)
        os.utime(folder.fd, ns=(folder.mtime, folder.mtime))

    def _file(self, name: bytes, mode: int, mtime: int, content: memoryview) -> None:
        fd = os.open(self._temporary, NEW, 0o600, dir_fd=self._folders[-1].fd)
        try:
            write_all(fd, content)
            self._place(fd, name, mode, mtime)
        except BaseException:
            self._drop()
            raise
        finally:
            os.close(fd)
        self.bytes += len(content)

    def _place(self, fd: int, name: bytes, mode: int, mtime: int) -> None:
        folder = self._folders[-1].fd
        os.fchmod(fd, mode & PERMISSIONS)
        os.utime(fd, ns=(mtime, mtime))
        os.rename(self._temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        self.files += 1

    def _drop(self) -> None:
        try:
            os.unlink(self._temporary, dir_fd=self._folders[-1].fd)
        except OSError:
            pass

    def _data(self, piece: memoryview) -> None:
        if self._large is None:
            raise Refused("content of no file")
        write_all(self._large[0], piece)
        self.bytes += len(piece)
        if self._verify:
            self._digest.update(piece)

    def _complete(self) -> None:
        if self._large is not None:
            fd, mode, mtime, name = self._large
            self._place(fd, name, mode, mtime)
            self._large = None
            os.close(fd)

    def _link(self, name: bytes, mtime: int, target: bytes) -> None:
        self.files += 1
        if b"\0" in target:
            raise Refused("a link with an impossible target")
        if leads_out(target, len(self._folders) - 1) and not self._keep_outside:
            if len(self.outside) < _TOLD:
                self.outside.append([self._path(name), target])
            return
        folder = self._folders[-1].fd
        os.symlink(target, self._temporary, dir_fd=folder)
        try:
            os.utime(self._temporary, ns=(mtime, mtime), dir_fd=folder, follow_symlinks=False)
            os.rename(self._temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            self._drop()
            raise

    def _touch(self, name: bytes, mode: int, mtime: int) -> None:
        """Give a file that has the right content the mode and time that go with it."""
        fd = os.open(name, READ, dir_fd=self._folders[-1].fd)
        try:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                os.fchmod(fd, mode & PERMISSIONS)
                os.utime(fd, ns=(mtime, mtime))
        finally:
            os.close(fd)
