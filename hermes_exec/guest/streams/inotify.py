"""An inotify(7) instance through ctypes: reports which watched files were opened or written."""

import os
import struct

from ..core.libc import libc

_IN_CLOSE_WRITE = 0x8
_IN_OPEN = 0x20
_IN_NONBLOCK_CLOEXEC = 0o2004000
_EVENT = struct.Struct("iIII")
_EVENTS = 16384
_LONGEST = 16 + 256
"""Bytes per read, and the largest size of one event (an event with the longest possible name)."""


class Inotify:
    """An inotify(7) instance that reports which files were written.

    A file counts as written when it is opened for writing and closed, even without a byte written. Programs that only
    read, such as a search through all folders, cause no event.
    """

    def __init__(self) -> None:
        import ctypes

        self._errno = ctypes.get_errno
        self.fd: int = libc().inotify_init1(_IN_NONBLOCK_CLOEXEC)
        if self.fd < 0:
            raise self._error("no inotify for a live shell (see fs.inotify.max_user_instances)")

    def _error(self, what: str) -> OSError:
        code = self._errno()
        return OSError(code, "{}: {}".format(what, os.strerror(code)))

    def close(self) -> None:
        """Close the inotify instance."""
        os.close(self.fd)

    def watch(self, path: str, reads: bool) -> int:
        """Watch a folder or a file, with or without read events; return the watch descriptor."""
        mask = _IN_CLOSE_WRITE | (_IN_OPEN if reads else 0)
        number: int = libc().inotify_add_watch(self.fd, path.encode(), mask)
        if number < 0:
            raise self._error("inotify_add_watch " + path)
        return number

    def unwatch(self, number: int) -> None:
        """Remove one watch."""
        libc().inotify_rm_watch(self.fd, number)

    def read(self) -> "list[tuple[int, bytes, bool]]":
        """Return the pending events: watch descriptor, file name in a watched folder, whether it was written."""
        data = b""
        while True:
            try:
                piece = os.read(self.fd, _EVENTS)
            except BlockingIOError:
                break
            data += piece
            if len(piece) <= _EVENTS - _LONGEST:
                break  # the buffer had room for another event, so none is left
        events: "list[tuple[int, bytes, bool]]" = []
        at = 0
        while at < len(data):
            number, mask, _, size = _EVENT.unpack_from(data, at)
            at += 16
            if mask & (_IN_OPEN | _IN_CLOSE_WRITE):
                events.append((number, data[at : at + size].rstrip(b"\0"), bool(mask & _IN_CLOSE_WRITE)))
            at += size
        return events
