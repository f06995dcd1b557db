"""Uploads, downloads and the operations of sync; each runs in a worker."""

import errno
import os
import stat
import struct

from . import atomic_writer, kernel_copy, operations, staging, tree_scan, tree_stream
from .safe_paths import BUFFER, FOLDER, PERMISSIONS, make_folders_above, read_up_to, sha256, write_all
from .tree_receiver import TreeReceiver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from .operations import FileTask

    Answer = dict[str, Any]

GOT = struct.Struct(">cHqQQ")
"""Before the content of a download: f or d, or n for a file that is handed off (its descriptor follows), or b for a
staged one (its path follows); mode, mtime in ns; bytes and files, of a folder only on request."""
LENT = struct.Struct(">QQQ")
"""Process, descriptor and inode of a file. The reply is one byte: whether the content still has to be sent."""
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


def get(task: "FileTask") -> "Answer":
    """Send a file's content or a folder's tree."""
    fd = os.open(task.path(), _READ)
    try:
        info = os.fstat(fd)
        mode, mtime = info.st_mode & PERMISSIONS, info.st_mtime_ns
        if stat.S_ISDIR(info.st_mode):
            totals = tree_scan.measure(fd, task.ignore()) if task.arguments["totals"] else (0, 0)
            write_all(task.fd_out, GOT.pack(b"d", mode, mtime, totals[1], totals[0]))
            folder, fd = fd, -1
            return _send_tree(task, folder)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, "neither a file nor a folder")
        lends = task.arguments["near"] and info.st_size >= kernel_copy.WORTH
        beside = task.arguments.get("beside")
        write_all(task.fd_out, GOT.pack(b"n" if lends else b"b" if beside else b"f", mode, mtime, info.st_size, 1))
        if lends:
            write_all(task.fd_out, LENT.pack(*kernel_copy.handoff_fields(fd)))
            if read_up_to(task.fd_in, 1) != b"\1":
                return {"sha256": b"", "size": info.st_size}
        if beside:
            start, digest = staging.offer_file(fd, task.fd_in, task.fd_out)
            if start == staging.NOTHING:
                return {"sha256": digest, "size": os.lseek(fd, 0, os.SEEK_CUR)}
            return _send_file(task, fd, start)
        return _send_file(task, fd)
    finally:
        if fd >= 0:
            os.close(fd)


def _send_file(task: "FileTask", fd: int, start: int = 0) -> "Answer":
    digest = (staging.hash_file(fd, start) if start else sha256()) if task.arguments["verify"] else None
    room = memoryview(bytearray(BUFFER))
    size = start
    count = os.readv(fd, [room])
    while count:
        write_all(task.fd_out, room[:count])
        size += count
        if digest is not None:
            digest.update(room[:count])
        count = os.readv(fd, [room])
    return {"sha256": b"" if digest is None else digest.digest(), "size": size}


def _send_tree(task: "FileTask", root: int) -> "Answer":
    sender = tree_stream.TreeSender(root, task.arguments["verify"])
    try:
        plan: "bytes | None" = task.arguments.get("plan")
        steps: "list[bytes]" = plan.split(b"\0") if plan else []
        blocks = sender.walk(task.ignore()) if plan is None else sender.send_plan(steps)
        for block in blocks:
            write_all(task.fd_out, block)
    finally:
        sender.close()
    return {}


def put(task: "FileTask") -> "Answer":
    """Receive one uploaded file."""
    atomic_writer.put(task.arguments, task.path(), task.fd_in, task.fd_out)
    return {}


def put_tree(task: "FileTask") -> "Answer":
    """Receive an uploaded tree into a folder, which is created if missing."""
    path = task.path()
    if task.arguments["parents"]:
        make_folders_above(path)
    root, fresh = open_root(path)
    receiver = TreeReceiver(root, fresh, task.arguments["verify"], task.arguments["keep_outside"])
    try:
        data = os.read(task.fd_in, BUFFER)
        while data:
            receiver.feed(data)
            data = os.read(task.fd_in, BUFFER)
        receiver.finish()
    except OSError as error:
        if error.filename:
            error.filename = os.path.join(path, error.filename)
        raise
    finally:
        receiver.close()
    landing = receiver.writer
    return {
        "files": landing.files,
        "bytes": landing.bytes,
        "outside": landing.outside,
        "skipped": receiver.skipped,
    }


def open_root(path: bytes) -> "tuple[int, bool]":
    """Open or create the folder at ``path``, which may be a link; return whether it is new."""
    try:
        os.mkdir(path, 0o700)
        fresh = True
    except FileExistsError:
        fresh = False
    return os.open(path, FOLDER), fresh


def scan(task: "FileTask") -> "Answer":
    """Send the packed content of a folder."""
    folder = os.open(task.path(), FOLDER)
    try:
        for part in tree_scan.scan(folder, task.ignore()):
            write_all(task.fd_out, part)
    finally:
        os.close(folder)
    return {}


def hashes(task: "FileTask") -> "Answer":
    """Send the SHA-256 of several files; zeros for one that cannot be read."""
    folder = os.open(task.path(), FOLDER)
    try:
        for digest in tree_scan.hashes(folder, task.arguments["paths"].split(b"\0")):
            task.put(digest or tree_stream.NO_DIGEST)
    finally:
        os.close(folder)
    task.flush()
    return {}


def prune(task: "FileTask") -> "Answer":
    """Remove the paths that sync deletes."""
    folder = os.open(task.path(), FOLDER)
    try:
        return {"removed": tree_scan.prune(folder, task.arguments["paths"].split(b"\0"))}
    finally:
        os.close(folder)


OPERATIONS: "dict[str, Callable[[FileTask], Answer]]" = {
    "get": get,
    "put": put,
    "put_tree": put_tree,
    "scan": scan,
    "hashes": hashes,
    "prune": prune,
}
OPERATIONS.update(operations.OPERATIONS)
