"""Content that comes and goes beside the channel, by whoever runs the place: as files that he can write and read.

Nothing of it is believed: what he brought has to have the size that the sender tells and, in the end, the hash; what he
takes the receiver compares. Whatever does not come so travels by the channel.
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
"""Bytes from which on it pays."""
PLACE = struct.Struct(">QH")
"""The size of a file and the length of the path that follows, of a folder, a pipe, or the file itself; without a path
nothing goes beside."""
PIECE = struct.Struct(">?Q")
"""Of each piece: whether it is in its file, or follows, and its size."""
START = struct.Struct(">Q")
"""From which byte on a file is to be sent by the channel all the same."""
NOTHING = (1 << 64) - 1
"""As a start: the receiver has it all."""
_LONGEST = 4096
_CLOSINGS = 10
"""More than there are pieces that can still come: three are under way at once, and each is tried three times."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


class NotStaged(Exception):
    """What was put there is not here: it did not get through, or whoever runs the place sees other files than we do."""


class StagingDir:
    """A folder below ``base`` for the pieces of one file, which are files named by their numbers."""

    def __init__(self, base: bytes) -> None:
        self._folder = base + b"/shelf-" + os.urandom(8).hex().encode()
        os.mkdir(self._folder, 0o700)
        self._number = 0
        self._awaited = True
        """Whether a piece may still come."""

    def announce(self, fd: int, size: int) -> None:
        """Say where to put the pieces of so many bytes."""
        write_all(fd, PLACE.pack(size, len(self._folder)) + self._folder)

    def receive(self, fd_in: int, fd: int, size: int, digest: "Any") -> bool:
        """Write exactly ``size`` bytes of what comes, and hash them; false when the sender ends before."""
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
                if not _copied(source, fd, min(count, size), digest, room):
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
        """Remove it, with what nobody has taken.

        A vendor may finish a request that was given up, and make the folder anew for it. Where that can be, an empty
        file has the folder's name from here on, until the guest ends.
        """
        for _ in range(_CLOSINGS):
            remove_folder(os.fsdecode(self._folder))
            if not self._awaited:
                return
            try:
                os.close(os.open(self._folder, NEW, 0o600))
            except FileExistsError:  # a piece came in between
                continue
            return


class StagingPipe:
    """A pipe with a name below ``base``, through which the content of one file comes while it is on its way.

    What comes through it too late finds nobody.
    """

    def __init__(self, base: bytes) -> None:
        self._path = base + b"/inflow-" + os.urandom(8).hex().encode()
        os.mkfifo(self._path, 0o600)
        # Open both ways, it has no end before somebody fills it, and none when he has gone.
        self._fd = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        enlarge_pipe(self._fd)

    def announce(self, fd: int, size: int) -> None:
        """Say where so many bytes are to go."""
        write_all(fd, PLACE.pack(size, len(self._path)) + self._path)

    def receive(self, fd_in: int, fd: int, size: int, digest: "Any") -> bool:
        """Write exactly ``size`` bytes of what comes, and hash them; raises Elsewhere when no more are to come.

        That is when ``fd_in`` says anything before all is in the pipe.
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
        """Remove it; who still fills it is told by a signal."""
        os.close(self._fd)
        os.unlink(self._path)


def _copied(source: int, fd: int, size: int, digest: "Any", room: memoryview) -> bool:
    while size:
        count = os.readv(source, [room[:size]])
        if not count:
            return False
        write_all(fd, room[:count])
        digest.update(room[:count])
        size -= count
    return True


def offer_file(fd: int, fd_in: int, fd_out: int) -> "tuple[int, bytes]":
    """Tell where an open file is, and its hash; gives from which byte on it is to be sent all the same, and goes there.

    That is ``NOTHING`` when the receiver has it all; its hash is given too.
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
    """The hash of a file's first ``size`` bytes, or of them all; goes behind them."""
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
