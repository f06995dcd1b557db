"""The writer of a received tree: creates folders, files and links below one root, each atomically.

The sender's data is not trusted: a name is one component, a link is never followed, and content is written to a
temporary file and renamed, so at any moment a path has either its old or its new content.
"""

import os

from .safe_paths import (
    NEW,
    PERMISSIONS,
    InvalidTreeData,
    case_fold,
    check_name,
    leads_out,
    make_writable,
    open_folder,
    same_file,
    touch,
    umask,
    write_all,
)

TEMPORARY = b".hx-"
"""The prefix of unfinished files' names."""
MAX_LISTED = 200
"""Most left-out entries that are reported one by one."""


class OpenFolder:
    """A folder being filled, and the mode and time that it gets when it is complete."""

    __slots__ = ("fd", "hidden", "mode", "mtime", "path", "seen")

    def __init__(self, fd: int, path: bytes, mode: int, mtime: int, *, hidden: bool = False) -> None:
        self.fd = fd
        self.path = path
        self.mode = mode & PERMISSIONS
        self.mtime = mtime
        self.hidden = hidden
        self.seen: "dict[bytes | str, bytes]" = {}

    def join(self, name: bytes) -> bytes:
        """Return the path of a name in this folder, relative to the root."""
        return self.path + b"/" + name if self.path else name

    def settle(self) -> None:
        """Set mode and time of the complete folder."""
        os.fchmod(self.fd, self.mode)
        os.utime(self.fd, ns=(self.mtime, self.mtime))


class TreeWriter:
    """The folders from the root down to the current one, and the large file being written, if any.

    A new folder has a temporary name until its files are written, so that these need no renaming of their own; it gets
    its final name before any folder in it is entered.
    """

    def __init__(self, root: int, keep_outside: bool) -> None:
        self.files = 0
        self.bytes = 0
        self.outside: "list[list[bytes]]" = []
        self._keep_outside = keep_outside
        self._folders = [OpenFolder(root, b"", 0, 0)]
        self._temporary = TEMPORARY + os.urandom(6).hex().encode()
        self._hidden = self._temporary + b".d"
        self._umask = umask()
        self._name = b""
        self._writing = b""
        self._making = False
        self._large = -1
        self._large_mode = 0
        self._large_mtime = 0

    @property
    def depth(self) -> int:
        """Return the number of folders between the current one and the root."""
        return len(self._folders) - 1

    @property
    def in_large_file(self) -> bool:
        """Whether a large file is being written (between ``begin`` and ``complete``)."""
        return self._large >= 0

    @property
    def path(self) -> bytes:
        """Return the path last worked on, relative to the root."""
        return self._folders[-1].join(self._name)

    def folder_path(self, name: bytes) -> bytes:
        """Return the path of a name in the current folder; of the folder itself for ``.``."""
        return self._folders[-1].path if name == b"." else self._folders[-1].join(name)

    def close(self) -> None:
        """Close open files, remove unfinished ones, and give complete folders their final names."""
        if self._large >= 0:
            os.close(self._large)
            self._large = -1
        self._drop()
        if self._making:
            try:
                os.rmdir(self._hidden, dir_fd=self._folders[-1].fd)
            except OSError:
                pass
        while len(self._folders) > 1:
            try:
                self.leave()
            except OSError:
                pass  # it stays unchanged
        while self._folders:
            os.close(self._folders.pop().fd)

    def set_root_metadata(self, mode: int, mtime: int) -> None:
        """Set the mode and time that a new root gets at the end."""
        root = self._folders[0]
        root.mode = mode & PERMISSIONS
        root.mtime = mtime

    def settle_root(self) -> None:
        """Complete the root folder."""
        self._folders[0].settle()

    def claim_name(self, name: bytes) -> None:
        """Refuse a name that is not plain, or that was already sent for the same file."""
        check_name(name)
        self._name = name
        seen = self._folders[-1].seen
        key = case_fold(name)
        earlier = seen.get(key)
        if earlier is None:
            seen[key] = name
        elif earlier == name or same_file(earlier, name, self._folders[-1].fd):
            raise InvalidTreeData("{!r} was sent twice".format(self.path))

    def enter(self, name: bytes, mode: int, mtime: int) -> None:
        """Enter a folder, which is created if missing."""
        self.claim_name(name)
        self._publish()
        above = self._folders[-1]
        hidden = False
        try:
            fd = open_folder(name, above.fd)
            make_writable(fd)
        except FileNotFoundError:
            self._making = True
            os.mkdir(self._hidden, 0o700, dir_fd=above.fd)
            fd = open_folder(self._hidden, above.fd)
            hidden = True
        self._folders.append(OpenFolder(fd, above.join(name), mode, mtime, hidden=hidden))
        self._making = False

    def _publish(self) -> None:
        folder = self._folders[-1]
        if folder.hidden:
            above = self._folders[-2].fd
            os.rename(self._hidden, os.path.basename(folder.path), src_dir_fd=above, dst_dir_fd=above)
            folder.hidden = False

    def leave(self) -> None:
        """Return to the parent of a complete folder."""
        folder = self._folders[-1]
        self._name = b""
        try:
            folder.settle()
            self._publish()
        finally:
            self._folders.pop()
            os.close(folder.fd)

    def file(self, name: bytes, mode: int, mtime: int, content: memoryview) -> None:
        """Write a whole small file."""
        self.claim_name(name)
        folder = self._folders[-1]
        at = folder.fd
        mode &= PERMISSIONS
        self._writing = name if folder.hidden else self._temporary
        fd = -1
        try:  # a signal may interrupt this at any moment, also between creating the file and recording it
            fd = self._create(mode)
            write_all(fd, content)
            if mode & self._umask:
                os.fchmod(fd, mode)
            os.utime(fd, ns=(mtime, mtime))
            if not folder.hidden:
                os.rename(self._writing, name, src_dir_fd=at, dst_dir_fd=at)
            self._writing = b""
        except BaseException:
            self._drop()
            raise
        finally:
            if fd >= 0:
                os.close(fd)
        self.files += 1
        self.bytes += len(content)

    def begin(self, name: bytes, mode: int, mtime: int) -> None:
        """Start a large file, whose content follows in pieces."""
        self.claim_name(name)
        folder = self._folders[-1]
        self._writing = name if folder.hidden else self._temporary
        self._large = self._create(0o600)
        self._large_mode = mode & PERMISSIONS
        self._large_mtime = mtime

    def write(self, piece: memoryview) -> None:
        """Write more content of the large file."""
        write_all(self._large, piece)
        self.bytes += len(piece)

    def complete(self) -> None:
        """Rename the large file, which is complete and verified."""
        fd = self._large
        os.fchmod(fd, self._large_mode)
        os.utime(fd, ns=(self._large_mtime, self._large_mtime))
        self._take_name()
        self._large = -1
        os.close(fd)
        self.files += 1

    def _take_name(self) -> None:
        folder = self._folders[-1]
        if not folder.hidden:
            os.rename(self._writing, self._name, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)
        self._writing = b""

    def _create(self, mode: int) -> int:
        try:
            return os.open(self._writing, NEW, mode, dir_fd=self._folders[-1].fd)
        except OSError:
            self._writing = b""  # the existing file is not ours
            raise

    def _drop(self) -> None:
        if self._writing:
            try:
                os.unlink(self._writing, dir_fd=self._folders[-1].fd)
            except OSError:
                pass
            self._writing = b""

    def link(self, name: bytes, mtime: int, target: bytes) -> None:
        """Create a symbolic link; one that may lead out of the tree is recorded instead."""
        self.claim_name(name)
        self.files += 1
        if b"\0" in target:
            raise InvalidTreeData("a link with an impossible target")
        if not self._keep_outside and leads_out(target, self.depth):
            if len(self.outside) < MAX_LISTED:
                self.outside.append([self.path, target])
            return
        folder = self._folders[-1]
        self._writing = name if folder.hidden else self._temporary
        try:
            os.symlink(target, self._writing, dir_fd=folder.fd)
            os.utime(self._writing, ns=(mtime, mtime), dir_fd=folder.fd, follow_symlinks=False)
            self._take_name()
        except BaseException:
            self._drop()
            raise

    def touch(self, name: bytes, mode: int, mtime: int) -> None:
        """Set the mode and time of a file that already has the right content."""
        self.claim_name(name)
        touch(name, self._folders[-1].fd, mode & PERMISSIONS, mtime)
