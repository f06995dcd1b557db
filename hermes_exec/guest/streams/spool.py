"""Output that is kept on disk while no client is connected."""

import os

from ..core.wire import CHUNK

CAP = 256 << 20
"""Bytes of one stream that are kept; beyond them the producer waits."""


class Spool:
    """A first-in first-out file of bounded size, without a name on disk."""

    def __init__(self, folder: str) -> None:
        self._file = nameless_file(folder)
        self._read = 0
        self._written = 0
        self._rest = b""  # bytes that did not fit on the disk

    @property
    def size(self) -> int:
        """Return the number of bytes added and not yet taken."""
        return self._written - self._read + len(self._rest)

    @property
    def full(self) -> bool:
        """Whether the spool accepts no more bytes."""
        return bool(self._rest) or self.size >= CAP

    def put(self, data: bytes) -> bool:
        """Append bytes; return False when the disk is full: the unwritten rest is then kept in memory."""
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self._file, data[done:], self._written + done)
        except OSError:
            self._rest = data[done:]
        self._written += done
        return not self._rest

    def take(self) -> bytes:
        """Return the next bytes, at most CHUNK."""
        if self._read == self._written:
            data, self._rest = self._rest, b""
            return data
        data = os.pread(self._file, min(CHUNK, self._written - self._read), self._read)
        self._read += len(data)
        return data

    def close(self) -> None:
        """Close the file, which frees its disk space."""
        os.close(self._file)


def nameless_file(folder: str) -> int:
    """Open a new read-write file and unlink it."""
    path = "{}/{}".format(folder, os.urandom(8).hex())
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(path)
    return fd
