"""Output that waits on disk while nobody is connected."""

import os

from .wire import CHUNK

CAP = 256 << 20
"""Bytes of one stream that are kept; beyond that the producer waits."""


class Spool:
    """A first-in first-out file of bounded size, without a name on disk."""

    def __init__(self, folder: str) -> None:
        self._file = nameless_file(folder)
        self._read = 0
        self._written = 0

    @property
    def size(self) -> int:
        """Bytes that were put and not taken yet."""
        return self._written - self._read

    def put(self, data: bytes) -> None:
        """Append; raises OSError when the disk is full, and then nothing was added."""
        done = 0
        while done < len(data):
            done += os.pwrite(self._file, data[done:], self._written + done)
        self._written += done

    def take(self) -> bytes:
        """The next bytes, at most CHUNK."""
        data = os.pread(self._file, min(CHUNK, self.size), self._read)
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
