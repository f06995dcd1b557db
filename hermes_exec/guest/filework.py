"""What the guest does with files, each operation from beginning to end. A worker runs them, so any of them may block."""

import errno
import os
import stat
import struct

from . import fileglob, fileput, filescan, filetree
from .filepatterns import Ignore
from .filesafe import (
    CHUNK,
    FOLDER,
    PERMISSIONS,
    check_name,
    make_folders,
    remove_tree,
    sha256,
    unlink,
    write_all,
)
from .fileunpack import Receiver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    Answer = dict[str, Any]

LISTED = struct.Struct(">IQqII")
"""One name of a listing: mode, size, mtime in ns, owner, group."""
GOT = struct.Struct(">cHqQQ")
"""Before the content of a download: f or d, mode, mtime in ns, bytes and files in all (of a folder only if asked)."""
PATH_LENGTH = struct.Struct(">H")


class Task:
    """The arguments of one operation, and the descriptors of its streams."""

    def __init__(self, arguments: "dict[str, Any]", fd_in: int, fd_out: int) -> None:
        self.arguments = arguments
        self.fd_in = fd_in
        self.fd_out = fd_out

    def path(self, key: str = "path") -> bytes:
        """An argument as an absolute path."""
        path: bytes = self.arguments[key]
        if not path or b"\0" in path:
            raise ValueError("no path")
        return os.path.join(self.arguments["cwd"], path)

    def ignore(self) -> Ignore:
        """What to leave out."""
        return Ignore(self.arguments["ignore"])


def describe(path: bytes, info: os.stat_result) -> "list[Any]":
    """What is told about one file."""
    target = os.readlink(path) if stat.S_ISLNK(info.st_mode) else None
    return [info.st_mode, info.st_size, info.st_mtime_ns, info.st_uid, info.st_gid, target]


def stat_(task: Task) -> "Answer":
    path = task.path()
    info = os.stat(path) if task.arguments["follow"] else os.lstat(path)
    return {"info": describe(path, info)}


def list_(task: Task) -> "Answer":
    folder = os.open(task.path(), FOLDER)
    try:
        for name in sorted(map(os.fsencode, os.listdir(folder))):
            try:
                info = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISLNK(info.st_mode):
                    name += b"/" + os.fsencode(os.readlink(name, dir_fd=folder))
            except FileNotFoundError:
                continue
            record = LISTED.pack(info.st_mode, info.st_size, info.st_mtime_ns, info.st_uid, info.st_gid)
            write_all(task.fd_out, PATH_LENGTH.pack(len(name)) + name + record)
    finally:
        os.close(folder)
    return {}


def glob(task: Task) -> "Answer":
    left = task.arguments["limit"]
    for path in fileglob.expand(task.arguments["cwd"], task.arguments["pattern"]):
        if not left:
            return {"more": True}
        left -= 1
        write_all(task.fd_out, path + b"\0")
    return {"more": False}


def mkdir(task: Task) -> "Answer":
    path = task.path()
    if task.arguments["parents"]:
        make_folders(path)
    else:
        os.mkdir(path)
    if task.arguments["mode"] is not None:
        os.chmod(path, task.arguments["mode"])
    return {}


def remove(task: Task) -> "Answer":
    path = task.path().rstrip(b"/")
    above, name = os.path.split(path)
    if not name or name in (b".", b".."):
        raise ValueError("the root, . and .. are never removed")
    folder = os.open(above or b"/", FOLDER)
    try:
        if task.arguments["recursive"]:
            if not unlink(name, folder):
                remove_tree(name, folder)
        elif not unlink(name, folder):
            os.rmdir(name, dir_fd=folder)
    finally:
        os.close(folder)
    return {}
