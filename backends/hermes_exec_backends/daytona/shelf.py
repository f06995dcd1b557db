"""The relay's folder in the sandbox, for what is too large for the connection. Sent as source, like the relay."""

import os
import zlib

from . import frames


class Shelf:
    """Files by number: those that the other side puts there, and those that it fetches. Nothing without a folder."""

    def __init__(self) -> None:
        self.folder = _made()
        self._number = 0

    def store(self, kind: int, data: "bytes | bytearray") -> bytes:
        """Put data there, to stand for a frame of ``kind``; gives what the frame says of it."""
        self._number += 1
        with open(self._path("out", self._number), "wb", 0) as file:
            file.write(data)
        return frames.FILE.pack(kind, self._number, len(data), zlib.crc32(data))

    def fetched(self, number: int) -> None:
        """A file that was stored is not needed any more."""
        os.unlink(self._path("out", number))

    def take(self, number: int) -> int:
        """A descriptor of a file that was put there, which is its last name."""
        path = self._path("in", number)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.unlink(path)
        return fd

    def close(self) -> None:
        """Remove the folder, with what nobody has fetched."""
        if self.folder:
            for name in os.listdir(self.folder):
                os.unlink(self.folder + "/" + name)
            os.rmdir(self.folder)

    def _path(self, way: str, number: int) -> str:
        return f"{self.folder}/{way}-{number}"


def _made() -> str:
    for base in ("/tmp", "/var/tmp"):
        path = f"{base}/.hermes-exec-{os.urandom(8).hex()}"
        try:
            os.mkdir(path, 0o700)
        except OSError:
            continue
        return path
    return ""
