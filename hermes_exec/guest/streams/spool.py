"""Output that waits on disk while nobody is connected."""

import os

from ..core.wire import CHUNK

CAP = 256 << 20
"""Bytes of one stream that are kept; beyond that the producer waits."""


class Spool:
    """A first-in first-out file of bounded size, without a name on disk."""

    def __init__(self, folder: str) -> None:
        self._file = nameless_file(folder)
        self._read = 0
        self._written = 0
        self._rest = b""  # what the disk did not take

    @property
    def size(self) -> int:
        """Bytes that were put and not taken yet."""
        return self._written - self._read + len(self._rest)

    @property
    def full(self) -> bool:
        """True when no more may be put."""
        return bool(self._rest) or self.size >= CAP

    def put(self, data: bytes) -> bool:
        """Append; False when the disk is full, and then what it did not take waits in memory."""
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self._file, data[done:], self._written + done)
        except OSError:
            self._rest = data[done:]
        self._written += done
        return not self._rest

    def take(self) -> bytes:
        """The next bytes, at most CHUNK."""
        if self._read == self._written:
            data, self._rest = self._rest, b""
            return data
        data = os.pread(self._file, min(CHUNK, self._written - self._read), self._read)
        self._read += len(data)
        return data

    def close(self) -> None:
        """Give the disk space back."""
        os.close(self._file)


def nameless_file(folder: str) -> int:
    """A new read-write file that has no name any more."""
    path = "{}/{}".format(folder, os.urandom(8).hex())
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(path)
    return fd
