"""Atomic replacement of one file: written to a temporary file in the same folder, then renamed."""

import errno
import fcntl
import os
import stat
import struct
import time

from ..core.fdutil import enlarge_pipe
from . import kernel_copy, staging
from .safe_paths import BUFFER, FOLDER, NEW, PERMISSIONS, InvalidTreeData, make_folders, read_up_to, sha256, write_all
from .tree_stream import DIGEST
from .tree_writer import TEMPORARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OFFER = struct.Struct(">Q32s")
"""What is left of an interrupted upload: its size, and its SHA-256."""
START = struct.Struct(">Q")
"""The sender's choice: the offset at which it starts to send."""
_WORTH = 256 << 10
_REST_S = 0.001
"""Waking up for each small piece costs more than writing it, so the writer lets more of them arrive first."""


class BrokeOff(Exception):
    """The sender's stream ended before everything had arrived."""


class AtomicWriter:
    """The new content of the file at ``path``; links on the way are followed, as the caller names the path."""

    def __init__(self, path: bytes, parents: bool) -> None:
        real = os.path.realpath(path)
        above, self._name = os.path.split(real)
        if parents:
            make_folders(above)
        self._old = self._present(path, real)
        self._folder = os.open(above, FOLDER)
        self._temporary = TEMPORARY + os.urandom(6).hex().encode()
        self.fd = -1

    @staticmethod
    def _present(path: bytes, real: bytes) -> "os.stat_result | None":
        try:
            old = os.stat(real)
        except FileNotFoundError:
            if path.endswith(b"/"):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) from None
            return None
        if stat.S_ISDIR(old.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(old.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return old

    def create(self, mode: int) -> None:
        """Start with an empty file; ``mode`` is subject to the umask."""
        self.fd = os.open(self._temporary, NEW, mode, dir_fd=self._folder)

    def resume(self) -> None:
        """Start with what an earlier upload to the same path left behind, if that file is verifiably ours."""
        digest = sha256()
        digest.update(self._name)
        name = TEMPORARY + digest.hexdigest()[:16].encode() + b".part"
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(name, flags, 0o600, dir_fd=self._folder)
        except OSError:
            self.create(0o600)
            return
        if _is_ours_alone(fd):
            self.fd = fd
            self._temporary = name
        else:
            os.close(fd)
            self.create(0o600)

    def keep_owner_and_mode(self, mode: "int | None") -> None:
        """Keep the replaced file's owner and mode, or set ``mode``; the owner only where that is permitted."""
        if self._old is not None:
            own = os.fstat(self.fd)
            if (own.st_uid, own.st_gid) != (self._old.st_uid, self._old.st_gid):
                try:
                    os.fchown(self.fd, self._old.st_uid, self._old.st_gid)
                except OSError as error:
                    if error.errno != errno.EPERM:
                        raise
            os.fchmod(self.fd, stat.S_IMODE(self._old.st_mode))
        if mode is not None:
            os.fchmod(self.fd, mode)

    def commit(self, *, durable: bool = False) -> None:
        """Rename the file to its path; with ``durable``, return when it is on the disk."""
        if durable:
            os.fsync(self.fd)
        os.rename(self._temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        if durable:
            os.fsync(self._folder)
        self._temporary = b""

    def close(self, *, keep: bool = False) -> None:
        """Remove the temporary file if it was not committed, unless ``keep`` leaves it to be resumed."""
        if self._temporary and not keep:
            try:
                os.unlink(self._temporary, dir_fd=self._folder)
            except OSError:
                pass
        if self.fd >= 0:
            os.close(self.fd)
        os.close(self._folder)


def _is_ours_alone(fd: int) -> bool:
    """Whether the file was created by us, has no other name, and is not being written by another upload."""
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1 or info.st_uid != os.geteuid():
        return False
    if stat.S_IMODE(info.st_mode) != 0o600:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def receive(fd_in: int, fd: int, size: int, digest: "Any") -> None:
    """Write and hash exactly ``size`` bytes of the input."""
    room = memoryview(bytearray(min(size, BUFFER)))
    patient = enlarge_pipe(fd_in)
    while size:
        count = os.readv(fd_in, [room[:size]])
        if not count:
            raise BrokeOff
        write_all(fd, room[:count])
        if digest is not None:
            digest.update(room[:count])
        size -= count
        if patient and count < _WORTH and size:
            time.sleep(_REST_S)


def write(arguments: "dict[str, Any]", path: bytes, fd_in: int, fd_out: int) -> None:
    """Replace a file's content, or append to it."""
    if arguments["append"]:
        _append(path, fd_in, arguments)
        return
    new = AtomicWriter(path, arguments["parents"])
    try:
        new.create(0o666)
        if arguments.get("beside"):
            _take(new.fd, arguments, (fd_in, fd_out), arguments["size"], sha256())
        else:
            receive(fd_in, new.fd, arguments["size"], None)
        new.keep_owner_and_mode(arguments["mode"])
        new.commit(durable=arguments["durable"])
    finally:
        new.close()


def _take(fd: int, arguments: "dict[str, Any]", streams: "tuple[int, int]", size: int, digest: "Any") -> None:
    """Receive content through a staging pipe or directory; then its hash."""
    by_pipe = arguments["beside"] == "pipe"
    come = (staging.StagingPipe if by_pipe else staging.StagingDir)(arguments["shelf"])
    try:
        come.announce(streams[1], size)
        if not come.receive(streams[0], fd, size, digest):
            raise BrokeOff
    finally:
        come.close()
    told = read_up_to(streams[0], DIGEST)
    if by_pipe and not told:
        raise staging.NotStaged
    _compare(told, digest)


def _compare(told: bytes, digest: "Any") -> None:
    if told != digest.digest():
        raise InvalidTreeData("the content does not match the hash that was sent")


def _append(path: bytes, fd_in: int, arguments: "dict[str, Any]") -> None:
    if arguments["parents"]:
        make_folders(os.path.dirname(path))
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY, 0o666)
    before = os.fstat(fd).st_size
    size = arguments["size"]
    try:
        receive(fd_in, fd, size, None)
        if arguments["mode"] is not None:
            os.fchmod(fd, arguments["mode"])
        if arguments["durable"]:
            os.fsync(fd)
    except BaseException:
        if before <= os.fstat(fd).st_size <= before + size:  # no other process appended to it
            os.ftruncate(fd, before)
        raise
    finally:
        os.close(fd)


def put(arguments: "dict[str, Any]", path: bytes, fd_in: int, fd_out: int) -> None:
    """Receive an uploaded file: its content, then its SHA-256 if it is to be compared."""
    resumable = arguments["resume"]
    verify = arguments["verify"] or arguments.get("beside")
    new = AtomicWriter(path, arguments["parents"])
    keep = False
    try:
        digest = sha256() if verify else None
        size = arguments["size"]
        if resumable:
            new.resume()
            if arguments["near"] and kernel_copy.copy_from(arguments["near"], new.fd, size):
                write_all(fd_out, OFFER.pack(size, kernel_copy.COPIED))
                _name(new, arguments)
                return
            start, so_far = _agree(new.fd, size, fd_in, fd_out)
            digest = so_far if verify else None
            size -= start
        else:
            new.create(0o600)
        if arguments.get("beside"):
            _take(new.fd, arguments, (fd_in, fd_out), size, digest)
        else:
            receive(fd_in, new.fd, size, digest)
            if verify:
                _compare(read_up_to(fd_in, DIGEST), digest)
            elif os.read(fd_in, 1):
                raise InvalidTreeData("more data than announced")
        _name(new, arguments)
    except (BrokeOff, staging.NotStaged):
        keep = resumable
        raise
    finally:
        new.close(keep=keep)


def _name(new: AtomicWriter, arguments: "dict[str, Any]") -> None:
    os.fchmod(new.fd, arguments["mode"] & PERMISSIONS)
    os.utime(new.fd, ns=(arguments["mtime"], arguments["mtime"]))
    new.commit()


def _agree(fd: int, size: int, fd_in: int, fd_out: int) -> "tuple[int, Any]":
    """Offer what is left of an upload; return the number of bytes to skip, and their hash."""
    there = min(os.fstat(fd).st_size, size)
    digest = sha256()
    left = there
    while left:
        data = os.read(fd, min(left, BUFFER))
        if not data:
            raise BrokeOff
        digest.update(data)
        left -= len(data)
    write_all(fd_out, OFFER.pack(there, digest.digest()))
    answer = read_up_to(fd_in, START.size)
    if len(answer) < START.size:
        raise BrokeOff
    (start,) = START.unpack(answer)
    if start not in (0, there):
        raise InvalidTreeData("a start that was not offered")
    os.ftruncate(fd, start)
    os.lseek(fd, start, os.SEEK_SET)
    return start, digest if start else sha256()
