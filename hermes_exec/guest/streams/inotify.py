"""Which files were touched, told by the kernel (inotify(7)), which Python has no name for."""

import os
import struct

from ..core.libc import libc

_IN_CLOSE_WRITE = 0x8
_IN_OPEN = 0x20
_IN_NONBLOCK_CLOEXEC = 0o2004000
_EVENT = struct.Struct("iIII")
_EVENTS = 16384
_LONGEST = 16 + 256
"""Bytes read at once, and of one event with a name of the longest kind."""


class Inotify:
    """Tells which files in watched folders, or which watched files, were written (inotify(7)).

    To be written is to be opened for writing and closed, with or without a byte. Whoever only reads, such as
    a search through all folders, leaves no trace.
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
        """Stop watching anything."""
        os.close(self.fd)

    def watch(self, path: str, reads: bool) -> int:
        """Watch a folder or a file, for ``reads`` too or no longer; gives the number that its events carry."""
        mask = _IN_CLOSE_WRITE | (_IN_OPEN if reads else 0)
        number: int = libc().inotify_add_watch(self.fd, path.encode(), mask)
        if number < 0:
            raise self._error("inotify_add_watch " + path)
        return number

    def unwatch(self, number: int) -> None:
        """Stop watching."""
        libc().inotify_rm_watch(self.fd, number)

    def read(self) -> "list[tuple[int, bytes, bool]]":
        """The events so far: the watch's number, the file's name inside a watched folder, whether it was written."""
        data = b""
        while True:
            try:
                piece = os.read(self.fd, _EVENTS)
            except BlockingIOError:
                break
            data += piece
            if len(piece) <= _EVENTS - _LONGEST:
                break  # one more would have fitted
        events: "list[tuple[int, bytes, bool]]" = []
        at = 0
        while at < len(data):
            number, mask, _, size = _EVENT.unpack_from(data, at)
            at += 16
            if mask & (_IN_OPEN | _IN_CLOSE_WRITE):
                events.append((number, data[at : at + size].rstrip(b"\0"), bool(mask & _IN_CLOSE_WRITE)))
            at += size
        return events
