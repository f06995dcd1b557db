"""Operations on single files and folders; each runs in a worker, so it may block."""

import errno
import os
import stat
import struct

from . import atomic_writer, path_glob, real_path, staging
from .ignore_patterns import Ignore
from .safe_paths import BUFFER, CHUNK, FOLDER, make_folders, remove_tree, unlink, write_all
from .tree_scan import digest_of
from .tree_writer import TEMPORARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    Answer = dict[str, Any]

LISTED = struct.Struct(">HIQqII")
"""One name of a listing: its length, mode, size, mtime in ns, owner, group; then name, ``/``, link target."""
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY


class FileTask:
    """The arguments of one operation, and the descriptors of its streams."""

    def __init__(self, arguments: "dict[str, Any]", fd_in: int, fd_out: int) -> None:
        self.arguments = arguments
        self.fd_in = fd_in
        self.fd_out = fd_out
        self._held: "list[bytes]" = []
        self._size = 0

    def path(self, key: str = "path") -> bytes:
        """Return an argument as an absolute path."""
        path: bytes = self.arguments[key]
        if not path or b"\0" in path:
            raise ValueError("no path")
        return os.path.join(self.arguments["cwd"], path)

    def ignore(self) -> Ignore:
        """Return the ignore patterns of the request."""
        return Ignore(self.arguments["ignore"])

    def put(self, data: bytes) -> None:
        """Queue a few bytes, to be sent together with what follows."""
        self._held.append(data)
        self._size += len(data)
        if self._size >= CHUNK:
            self.flush()

    def flush(self) -> None:
        """Send the queued bytes."""
        write_all(self.fd_out, b"".join(self._held))
        self._held = []
        self._size = 0


def stat_(task: FileTask) -> "Answer":
    """Return the status of a file."""
    path = task.path()
    info = os.stat(path) if task.arguments["follow"] else os.lstat(path)
    target = os.readlink(path) if stat.S_ISLNK(info.st_mode) else None
    return {"info": [info.st_mode, info.st_size, info.st_mtime_ns, info.st_uid, info.st_gid, target]}


def resolve(task: FileTask) -> "Answer":
    """Resolve a path; nothing is opened for reading, which leaves pipes and devices untouched."""
    fd = os.open(task.path(), os.O_PATH | os.O_CLOEXEC)
    try:
        return real_path.trace(fd)
    finally:
        os.close(fd)


def list_(task: FileTask) -> "Answer":
    """List a folder."""
    folder = os.open(task.path(), FOLDER)
    try:
        for name in sorted(map(os.fsencode, os.listdir(folder))):
            try:
                info = os.stat(name, dir_fd=folder, follow_symlinks=False)
                told = name
                if stat.S_ISLNK(info.st_mode):
                    told += b"/" + os.fsencode(os.readlink(name, dir_fd=folder))
            except FileNotFoundError:
                continue  # it vanished
            numbers = info.st_mode, info.st_size, info.st_mtime_ns, info.st_uid, info.st_gid
            task.put(LISTED.pack(len(told), *numbers) + told)
    finally:
        os.close(folder)
    task.flush()
    return {}


def glob(task: FileTask) -> "Answer":
    """Send the paths that match a pattern."""
    left = task.arguments["limit"]
    for path in path_glob.expand(task.arguments["cwd"], task.arguments["pattern"]):
        if not left:
            return {"more": True}
        left -= 1
        task.put(path + b"\0")
    task.flush()
    return {"more": False}


def mkdir(task: FileTask) -> "Answer":
    """Create a folder; with ``parents``, an existing one is not an error."""
    path = task.path()
    if task.arguments["parents"]:
        make_folders(path)
    else:
        os.mkdir(path)
    if task.arguments["mode"] is not None:
        os.chmod(path, task.arguments["mode"])
    return {}


def remove(task: FileTask) -> "Answer":
    """Remove a file, a link or an empty folder; with ``recursive``, a whole tree."""
    above, name = os.path.split(task.path().rstrip(b"/"))
    if name in (b"", b".", b".."):
        raise OSError(errno.EINVAL, "the root, . and .. are never removed")
    folder = os.open(above, FOLDER)
    try:
        if not unlink(name, folder):
            if task.arguments["recursive"]:
                remove_tree(name, folder)
            else:
                os.rmdir(name, dir_fd=folder)
    finally:
        os.close(folder)
    return {}


def move(task: FileTask) -> "Answer":
    """Rename a path; across file systems it is copied to a temporary name first, then renamed."""
    source, to = task.path(), task.path("to")
    try:
        os.rename(source, to)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _move_across(source, to)
    return {}


def _move_across(source: bytes, to: bytes) -> None:
    import shutil

    to = to.rstrip(b"/")
    temporary = os.path.join(os.path.dirname(to), TEMPORARY + os.urandom(6).hex().encode())
    is_folder = os.path.isdir(source) and not os.path.islink(source)
    try:
        if is_folder:
            shutil.copytree(os.fsdecode(source), os.fsdecode(temporary), symlinks=True)
        else:
            shutil.copy2(source, temporary, follow_symlinks=False)
        os.rename(temporary, to)
    except BaseException:
        if is_folder:
            shutil.rmtree(temporary, ignore_errors=True)
        elif os.path.lexists(temporary):
            os.unlink(temporary)
        raise
    if is_folder:
        shutil.rmtree(source)
    else:
        os.unlink(source)


def chmod(task: FileTask) -> "Answer":
    """Set the permissions of the file that the path leads to."""
    os.chmod(task.path(), task.arguments["mode"])
    return {}


def symlink(task: FileTask) -> "Answer":
    """Create a symbolic link; with ``replace``, it replaces an existing link or file."""
    path = task.path()
    if not task.arguments["replace"]:
        os.symlink(task.arguments["target"], path)
        return {}
    temporary = os.path.join(os.path.dirname(path), TEMPORARY + os.urandom(6).hex().encode())
    os.symlink(task.arguments["target"], temporary)
    try:
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return {}


def readlink(task: FileTask) -> "Answer":
    """Return the target of a symbolic link."""
    return {"target": os.readlink(task.path())}


def hash_(task: FileTask) -> "Answer":
    """Return the SHA-256 of a file."""
    fd = os.open(task.path(), _READ)
    try:
        return {"sha256": digest_of(fd)}
    finally:
        os.close(fd)


def read(task: FileTask) -> "Answer":
    """Send bytes of a file, device or pipe; with ``trace``, also the real path of the open file."""
    fd = os.open(task.path(), _READ)
    answer: "Answer" = {}
    try:
        if task.arguments.get("trace"):
            answer = real_path.trace(fd)
        if task.arguments["offset"]:
            os.lseek(fd, task.arguments["offset"], os.SEEK_SET)
        left = task.arguments["length"]
        if task.arguments.get("beside") and staging.offer_file(fd, task.fd_in, task.fd_out)[0] == staging.NOTHING:
            return {}
        while left is None or left > 0:
            data = os.read(fd, BUFFER if left is None else min(left, BUFFER))
            if not data:
                break
            write_all(task.fd_out, data)
            left = None if left is None else left - len(data)
    finally:
        os.close(fd)
    return answer


def write(task: FileTask) -> "Answer":
    """Replace a file's content, or append to it."""
    atomic_writer.write(task.arguments, task.path(), task.fd_in, task.fd_out)
    return {}


OPERATIONS: "dict[str, Callable[[FileTask], Answer]]" = {
    "stat": stat_,
    "resolve": resolve,
    "list": list_,
    "glob": glob,
    "mkdir": mkdir,
    "remove": remove,
    "move": move,
    "chmod": chmod,
    "symlink": symlink,
    "readlink": readlink,
    "hash": hash_,
    "read": read,
    "write": write,
}
