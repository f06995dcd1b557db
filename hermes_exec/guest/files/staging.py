"""File content that bypasses the channel: the engine or vendor that runs the target reads and writes staged files.

Staged content is verified: an upload must have the announced size and, at the end, the announced hash; the receiver
of a download compares its hash. Content that cannot be staged travels through the channel.
"""

import os
import select
import struct

from ..core.fdutil import enlarge_pipe, remove_folder
from .safe_paths import BUFFER, NEW, read_up_to, sha256, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WORTH = 8 << 20
"""File size in bytes from which staging pays off."""
PLACE = struct.Struct(">QH")
"""The size of a file and the length of the path that follows, of a folder, a pipe, or the file itself; without a path
the content is not staged."""
PIECE = struct.Struct(">?Q")
"""For each piece: whether it is staged or follows in the channel, and its size."""
START = struct.Struct(">Q")
"""The offset from which a file has to be sent through the channel."""
NOTHING = (1 << 64) - 1
"""As a start: the receiver has the whole file."""
_LONGEST = 4096
_CLOSINGS = 10
"""Larger than the number of pieces that can still arrive: three at once, and each is tried three times."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


class NotStaged(Exception):
    """The staged content is not visible here: it did not arrive, or the engine uses another file system."""


class StagingDir:
    """A folder below ``base`` for the pieces of one file, which are files named by their numbers."""

    def __init__(self, base: bytes) -> None:
        self._folder = base + b"/shelf-" + os.urandom(8).hex().encode()
        os.mkdir(self._folder, 0o700)
        self._number = 0
        self._awaited = True
        """Whether another piece may still arrive."""

    def announce(self, fd: int, size: int) -> None:
        """Send the path to which the pieces of ``size`` bytes are to be written."""
        write_all(fd, PLACE.pack(size, len(self._folder)) + self._folder)

    def receive(self, fd_in: int, fd: int, size: int, digest: "Any") -> bool:
        """Write and hash exactly ``size`` bytes of the input; return False if the sender ends early."""
        room = memoryview(bytearray(min(size, BUFFER)))
        all_beside = True
        while size:
            told = read_up_to(fd_in, PIECE.size)
            if len(told) < PIECE.size:
                return False
            beside, count = PIECE.unpack(told)
            all_beside = all_beside and beside
            source = self._piece(count) if beside else fd_in
            try:
                if not _copy(source, fd, min(count, size), digest, room):
                    return False
            finally:
                if beside:
                    os.close(source)
            self._number += 1
            size -= min(count, size)
        self._awaited = not all_beside
        return True

    def _piece(self, size: int) -> int:
        path = self._folder + b"/%d" % self._number
        try:
            fd = os.open(path, _READ)
            os.unlink(path)
        except OSError:
            raise NotStaged from None
        if os.fstat(fd).st_size != size:
            os.close(fd)
            raise NotStaged
        return fd

    def close(self) -> None:
        """Remove the folder and the pieces left in it.

        A vendor may complete a request that was given up, and create the folder again for it. Where that can happen, an
        empty file keeps the folder's name until the guest ends.
        """
        for _ in range(_CLOSINGS):
            remove_folder(os.fsdecode(self._folder))
            if not self._awaited:
                return
            try:
                os.close(os.open(self._folder, NEW, 0o600))
            except FileExistsError:  # a piece arrived in between
                continue
            return


class StagingPipe:
    """A named pipe below ``base``, through which the content of one file is transferred.

    Content that arrives too late has no reader.
    """

    def __init__(self, base: bytes) -> None:
        self._path = base + b"/inflow-" + os.urandom(8).hex().encode()
        os.mkfifo(self._path, 0o600)
        # Open for reading and writing, it has no end of file, neither before a writer opens it nor after it closes it.
        self._fd = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        enlarge_pipe(self._fd)

    def announce(self, fd: int, size: int) -> None:
        """Send the path of the pipe for ``size`` bytes."""
        write_all(fd, PLACE.pack(size, len(self._path)) + self._path)

    def receive(self, fd_in: int, fd: int, size: int, digest: "Any") -> bool:
        """Write and hash exactly ``size`` bytes of the pipe; raise NotStaged when no more will arrive.

        That is the case when ``fd_in`` receives anything before all bytes are in the pipe.
        """
        room = memoryview(bytearray(min(size, BUFFER)))
        both = select.poll()
        both.register(fd_in, select.POLLIN)
        both.register(self._fd, select.POLLIN)
        while size:
            if self._fd not in dict(both.poll()):
                raise NotStaged
            count = os.readv(self._fd, [room[:size]])
            write_all(fd, room[:count])
            digest.update(room[:count])
            size -= count
        return True

    def close(self) -> None:
        """Remove the pipe; a process that still writes to it gets SIGPIPE."""
        os.close(self._fd)
        os.unlink(self._path)


def _copy(source: int, fd: int, size: int, digest: "Any", room: memoryview) -> bool:
    while size:
        count = os.readv(source, [room[:size]])
        if not count:
            return False
        write_all(fd, room[:count])
        digest.update(room[:count])
        size -= count
    return True


def offer_file(fd: int, fd_in: int, fd_out: int) -> "tuple[int, bytes]":
    """Send the path and hash of an open file; seek to and return the offset to send from.

    The offset is ``NOTHING`` when the receiver has the whole file. The hash is returned too.
    """
    size = os.fstat(fd).st_size
    path = _path(fd) if size >= WORTH else b""
    write_all(fd_out, PLACE.pack(size, len(path)) + path)
    if not path:
        return 0, b""
    digest: bytes = hash_file(fd, None).digest()
    write_all(fd_out, digest)
    told = read_up_to(fd_in, START.size)
    start: int = START.unpack(told)[0] if len(told) == START.size else NOTHING
    if start != NOTHING:
        os.lseek(fd, start, os.SEEK_SET)
    return start, digest


def hash_file(fd: int, size: "int | None") -> "Any":
    """Return the hash of a file's first ``size`` bytes, or of all; the file position is then after them."""
    digest = sha256()
    room = memoryview(bytearray(BUFFER))
    os.lseek(fd, 0, os.SEEK_SET)
    while size is None or size:
        count = os.readv(fd, [room if size is None else room[:size]])
        if not count:
            break
        digest.update(room[:count])
        if size is not None:
            size -= count
    return digest


def _path(fd: int) -> bytes:
    try:
        path = os.readlink(b"/proc/self/fd/%d" % fd)
        path.decode()
    except (OSError, ValueError):
        return b""
    return path if len(path) <= _LONGEST else b""
