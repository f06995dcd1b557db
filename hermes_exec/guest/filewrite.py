"""Where a received tree lands: folders, files and links below one root, each in its place at once and whole.

Nothing that comes from the sender is trusted: a name is one component, a link is never followed, a
content is written beside its place and renamed into it, so at any moment there is the old or the new.
"""

import errno
import os
import stat

from .filesafe import (
    NEW,
    PERMISSIONS,
    READ,
    Refused,
    check_name,
    fold,
    leads_out,
    open_folder,
    write_all,
)

TEMPORARY = b".hx-"
"""How the names of unfinished files begin."""
TOLD = 200
"""Entries left out that are told one by one."""


class Folder:
    """A folder that is being filled, and the mode and time that it gets when all is in it."""

    __slots__ = ("fd", "mode", "mtime", "path", "seen")

    def __init__(self, fd: int, path: bytes, mode: int, mtime: int) -> None:
        self.fd = fd
        self.path = path
        self.mode = mode & PERMISSIONS
        self.mtime = mtime
        self.seen: "dict[bytes | str, bytes]" = {}

    def join(self, name: bytes) -> bytes:
        """The path of a name in here, relative to the root."""
        return self.path + b"/" + name if self.path else name

    def settle(self) -> None:
        """All is in it."""
        os.fchmod(self.fd, self.mode)
        os.utime(self.fd, ns=(self.mtime, self.mtime))


class Landing:
    """The folders from the root down to the present one, and the large file that is being written, if any."""

    def __init__(self, root: int, keep_outside: bool) -> None:
        self.files = 0
        self.bytes = 0
        self.outside: "list[list[bytes]]" = []
        self._keep_outside = keep_outside
        self._folders = [Folder(root, b"", 0, 0)]
        self._temporary = TEMPORARY + os.urandom(6).hex().encode()
        self._name = b""
        self._large = -1
        self._large_mode = 0
        self._large_mtime = 0

    @property
    def depth(self) -> int:
        """Folders between the present one and the root."""
        return len(self._folders) - 1

    @property
    def in_large_file(self) -> bool:
        """True between ``begin`` and ``complete``."""
        return self._large >= 0

    @property
    def path(self) -> bytes:
        """What was worked on last, relative to the root."""
        return self._folders[-1].join(self._name)

    def folder_path(self, name: bytes) -> bytes:
        """The path of a name in the present folder; of the folder itself for ``.``."""
        return self._folders[-1].path if name == b"." else self._folders[-1].join(name)

    def close(self) -> None:
        """Close what is open and remove what is unfinished."""
        if self._large >= 0:
            os.close(self._large)
            self._large = -1
            self._drop()
        while self._folders:
            os.close(self._folders.pop().fd)

    def root_is(self, mode: int, mtime: int) -> None:
        """The root is a new folder: its mode and time for the end."""
        root = self._folders[0]
        root.mode = mode & PERMISSIONS
        root.mtime = mtime

    def settle_root(self) -> None:
        """All is there."""
        self._folders[0].settle()

    def take(self, name: bytes) -> None:
        """Refuse a name that is not plain, or that was sent before for the same file."""
        check_name(name)
        self._name = name
        earlier = self._folders[-1].seen.setdefault(fold(name), name)
        if earlier is not name and (earlier == name or self._same(earlier, name)):
            raise Refused("{!r} was sent twice".format(self.path))

    def _same(self, earlier: bytes, name: bytes) -> bool:
        """Whether this file system takes two spellings for one file."""
        folder = self._folders[-1].fd
        try:
            first = os.stat(earlier, dir_fd=folder, follow_symlinks=False)
            second = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(first, second)

    def enter(self, name: bytes, mode: int, mtime: int) -> None:
        """Go into a folder, which is made if it is not there."""
        self.take(name)
        folder = self._folders[-1]
        try:
            os.mkdir(name, 0o700, dir_fd=folder.fd)
        except FileExistsError:
            pass
        self._folders.append(Folder(open_folder(name, folder.fd), folder.join(name), mode, mtime))

    def leave(self) -> None:
        """Go back up from a folder that is complete."""
        folder = self._folders.pop()
        self._name = os.path.basename(folder.path)
        try:
            folder.settle()
        finally:
            os.close(folder.fd)

    def file(self, name: bytes, mode: int, mtime: int, content: memoryview) -> None:
        """A whole small file."""
        self.take(name)
        folder = self._folders[-1].fd
        temporary = self._temporary
        fd = os.open(temporary, NEW, 0o600, dir_fd=folder)
        try:
            if os.write(fd, content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fchmod(fd, mode & PERMISSIONS)
            os.utime(fd, ns=(mtime, mtime))
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            self._drop()
            raise
        finally:
            os.close(fd)
        self.files += 1
        self.bytes += len(content)

    def begin(self, name: bytes, mode: int, mtime: int) -> None:
        """A large file, whose content follows in pieces."""
        self.take(name)
        self._large = self._new()
        self._large_mode = mode
        self._large_mtime = mtime

    def write(self, piece: memoryview) -> None:
        """More content of the large file."""
        write_all(self._large, piece)
        self.bytes += len(piece)

    def complete(self) -> None:
        """The large file is whole and right."""
        self._place(self._large, self._large_mode, self._large_mtime)
        fd = self._large
        self._large = -1
        os.close(fd)

    def _new(self) -> int:
        return os.open(self._temporary, NEW, 0o600, dir_fd=self._folders[-1].fd)

    def _place(self, fd: int, mode: int, mtime: int) -> None:
        folder = self._folders[-1].fd
        os.fchmod(fd, mode & PERMISSIONS)
        os.utime(fd, ns=(mtime, mtime))
        os.rename(self._temporary, self._name, src_dir_fd=folder, dst_dir_fd=folder)
        self.files += 1

    def _drop(self) -> None:
        try:
            os.unlink(self._temporary, dir_fd=self._folders[-1].fd)
        except OSError:
            pass

    def link(self, name: bytes, mtime: int, target: bytes) -> None:
        """A symbolic link; one that may lead out of the tree is noted instead."""
        self.take(name)
        self.files += 1
        if b"\0" in target:
            raise Refused("a link with an impossible target")
        if not self._keep_outside and leads_out(target, self.depth):
            if len(self.outside) < TOLD:
                self.outside.append([self.path, target])
            return
        folder = self._folders[-1].fd
        os.symlink(target, self._temporary, dir_fd=folder)
        try:
            os.utime(self._temporary, ns=(mtime, mtime), dir_fd=folder, follow_symlinks=False)
            os.rename(self._temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            self._drop()
            raise

    def touch(self, name: bytes, mode: int, mtime: int) -> None:
        """Give a file that has the right content the mode and time that go with it."""
        self.take(name)
        fd = os.open(name, READ, dir_fd=self._folders[-1].fd)
        try:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                os.fchmod(fd, mode & PERMISSIONS)
                os.utime(fd, ns=(mtime, mtime))
        finally:
            os.close(fd)
