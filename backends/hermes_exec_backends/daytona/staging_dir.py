"""The relay's directory in the sandbox, for data too large for the connection. Sent as source, like the relay."""

import os
import zlib

from . import frames

_BASES = ("/tmp", "/var/tmp")
_PREFIX = ".hermes-exec-"


class Shelf:
    """Files by number: those that the other side uploads, and those that it downloads. Inactive without a directory."""

    def __init__(self) -> None:
        self.folder = _make_folder()
        self._number = 0

    def store(self, kind: int, data: "bytes | bytearray") -> bytes:
        """Store data in a file that replaces a frame of ``kind``; return the payload of the frame that refers to it."""
        self._number += 1
        with open(self._path("out", self._number), "wb", 0) as file:
            file.write(data)
        return frames.FILE.pack(kind, self._number, len(data), zlib.crc32(data))

    def delete_fetched(self, number: int) -> None:
        """Delete a stored file that was downloaded."""
        os.unlink(self._path("out", number))

    def take(self, number: int) -> int:
        """Return a descriptor of an uploaded file, and remove the file's name."""
        path = self._path("in", number)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.unlink(path)
        return fd

    def close(self) -> None:
        """Remove the directory, with the files that were not downloaded."""
        if self.folder:
            _remove(self.folder)

    def _path(self, way: str, number: int) -> str:
        return f"{self.folder}/{way}-{number}"


def sweep() -> None:
    """Remove files uploaded for ended relays of this user; the vendor creates their directories again for them."""
    for base in _BASES:
        try:
            names = os.listdir(base)
        except OSError:
            continue
        for name in names:
            pid, _, rest = name[len(_PREFIX) :].partition("-")
            if name.startswith(_PREFIX) and rest and pid.isdigit() and _is_gone(int(pid)):
                try:
                    _remove(base + "/" + name)
                except OSError:
                    pass  # another relay removes it too


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        pass  # another relay's
    return False


def _remove(folder: str) -> None:
    entry = os.lstat(folder)
    if entry.st_uid != os.getuid() or entry.st_mode & 0o170000 != 0o040000:
        return
    for name in os.listdir(folder):
        os.unlink(folder + "/" + name)
    os.rmdir(folder)


def _make_folder() -> str:
    for base in _BASES:
        path = f"{base}/{_PREFIX}{os.getpid()}-{os.urandom(8).hex()}"
        try:
            os.mkdir(path, 0o700)
        except OSError:
            continue
        return path
    return ""
