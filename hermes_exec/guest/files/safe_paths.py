"""The rules that keep a tree inside its root, the same on both sides.

Every file below a root is accessed as one open folder and one plain name. No link is ever followed, and no name can
lead elsewhere, even if another process changes the tree at the same time.
"""

import errno
import os
import stat

from ..core import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Never blocks on a pipe that has replaced the file."""
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PERMISSIONS = 0o777
"""The mode bits that are transferred: never setuid, setgid or sticky."""
CHUNK = wire.CHUNK
"""Payload bytes of one frame."""
BUFFER = 1 << 20
"""Bytes per read into a reused buffer: a new buffer each time costs more than the read itself."""

REFUSE_LINKS, SKIP_LINKS, KEEP_LINKS = range(3)
"""What to do with a link whose target is outside of the tree."""


class InvalidTreeData(ValueError):
    """Data that no correct sender produces; nothing of it was written outside the root."""


def sha256() -> "Any":
    """Return a new hash object; avoids the module ``hashlib``, which is slow to import."""
    try:
        from _hashlib import openssl_sha256
    except ImportError:
        from hashlib import sha256 as openssl_sha256
    return openssl_sha256()


_NOT_PLAIN = frozenset((b"", b".", b".."))


def check_name(name: bytes) -> None:
    """Raise InvalidTreeData unless ``name``, which has no NUL, is one plain component of a path."""
    if name in _NOT_PLAIN or b"/" in name:
        raise InvalidTreeData("{!r} is not a plain name".format(name))


def umask() -> int:
    """Return this process's umask; all bits set where an old kernel does not report it."""
    try:
        with open("/proc/self/status", "rb") as file:
            for line in file:
                if line.startswith(b"Umask:"):
                    return int(line[6:], 8)
    except OSError:
        pass
    return 0o777


def leads_out(target: bytes, depth: int) -> bool:
    """Whether a link's target, seen from a folder ``depth`` below the root, may be outside of the root.

    Leading ``..`` components are trusted, since they pass real folders: after the name of another link, ``..`` may lead
    anywhere.
    """
    words = [word for word in target.split(b"/") if word not in (b"", b".")]
    ups = 0
    while ups < len(words) and words[ups] == b"..":
        ups += 1
    return not target or target.startswith(b"/") or ups > depth or b".." in words[ups:]


def case_fold(name: bytes) -> "bytes | str":
    """Return a key that is equal for two names that a case-insensitive file system treats as one."""
    try:
        name.decode("ascii")
    except UnicodeDecodeError:
        import unicodedata

        text = unicodedata.normalize("NFD", os.fsdecode(name)).casefold()
        return unicodedata.normalize("NFC", text)
    return name.lower()


def open_folder(name: bytes, parent: int) -> int:
    """Open a folder in ``parent``; a link of that name is an error and never followed."""
    return os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=parent)


def make_writable(folder: int) -> None:
    """Make an open folder writable, if this user owns it."""
    info = os.fstat(folder)
    if info.st_mode & 0o700 != 0o700 and info.st_uid == os.geteuid():
        os.fchmod(folder, stat.S_IMODE(info.st_mode) | 0o700)


def names_in(folder: int) -> "list[bytes]":
    """Return the names in an open folder, sorted as bytes."""
    names = [os.fsencode(name) for name in os.listdir(folder)]
    names.sort()
    return names


def write_all(fd: int, data: "bytes | memoryview") -> None:
    """Write everything to a blocking descriptor."""
    done = os.write(fd, data)
    while done < len(data):
        data = memoryview(data)[done:]
        done = os.write(fd, data)


def read_up_to(fd: int, size: int) -> bytes:
    """Return ``size`` bytes, or fewer at the end of the file."""
    data = os.read(fd, size)
    if len(data) == size or not data:
        return data
    parts = [data]
    left = size - len(data)
    while left:
        data = os.read(fd, left)
        if not data:
            break
        parts.append(data)
        left -= len(data)
    return b"".join(parts)


def make_folders(path: bytes) -> None:
    """Create a folder and its missing parents."""
    try:
        os.mkdir(path)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    except FileNotFoundError:
        above = os.path.dirname(path.rstrip(b"/"))
        if not above or above == path:
            raise
        make_folders(above)
        os.mkdir(path)


def make_folders_above(path: bytes) -> None:
    """Create the missing parents of ``path``."""
    make_folders(os.path.dirname(os.path.abspath(path)))


def remove_tree(name: bytes, parent: int) -> None:
    """Remove a folder and its content, following no link; after a failure a part may be left."""
    folder = open_folder(name, parent)
    below = [(folder, name, names_in(folder))]
    try:
        while below:
            folder, own, names = below[-1]
            while names:
                inner = names.pop()
                if not unlink(inner, folder):
                    opened = open_folder(inner, folder)
                    below.append((opened, inner, names_in(opened)))
                    break
            else:
                below.pop()
                os.close(folder)
                os.rmdir(own, dir_fd=below[-1][0] if below else parent)
    finally:
        for folder, _, _ in below:
            os.close(folder)


def unlink(name: bytes, folder: int) -> bool:
    """Remove anything but a folder; return False if it is a folder."""
    try:
        os.unlink(name, dir_fd=folder)
    except OSError as error:
        # The error is EISDIR on Linux, EPERM in POSIX.
        if error.errno not in (errno.EISDIR, errno.EPERM):
            raise
        if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise
        return False
    return True


def same_file(first: bytes, second: bytes, folder: int) -> bool:
    """Whether this file system treats two names in a folder as one file."""
    try:
        infos = [os.stat(name, dir_fd=folder, follow_symlinks=False) for name in (first, second)]
    except FileNotFoundError:
        return False
    return os.path.samestat(*infos)


def touch(name: bytes, folder: int, mode: int, mtime: int) -> None:
    """Set the mode and time of a file, never through a link."""
    fd = os.open(name, READ, dir_fd=folder)
    try:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.fchmod(fd, mode)
            os.utime(fd, ns=(mtime, mtime))
    finally:
        os.close(fd)


class PathWalker:
    """A walker from a root down by components, which keeps the folders on the way open for the next path."""

    def __init__(self, root: int) -> None:
        self._folders = [root]
        self._names: "list[bytes]" = []

    def folder(self, names: "list[bytes]") -> int:
        """Return the open folder at ``names`` below the root; a link on the way is an error."""
        same = 0
        while same < min(len(names), len(self._names)) and names[same] == self._names[same]:
            same += 1
        self._back_to(same)
        for name in names[same:]:
            check_name(name)
            self._folders.append(open_folder(name, self._folders[-1]))
            self._names.append(name)
        return self._folders[-1]

    def _back_to(self, depth: int) -> None:
        while len(self._names) > depth:
            self._names.pop()
            os.close(self._folders.pop())

    def close(self) -> None:
        """Close everything but the root, which belongs to the caller."""
        self._back_to(0)
