"""A watcher of sessions by inotify(7), with one pair of instances per guest; see also ``polling_watcher``."""

import os
import struct

from ..core.libc import libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..core.loop import Loop

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


class InotifyWatcher:
    """A watcher of session folders: one inotify instance for statuses, one for command starts, which is only polled."""

    note = ""

    def __init__(self, loop: "Loop") -> None:
        self._statuses = Inotify()
        try:
            self._begun = Inotify()
        except OSError:
            self._statuses.close()
            raise
        self._seen: "dict[int, bool]" = {}
        self._calls: "dict[int, Callable[[bytes], None]]" = {}
        loop.on_read(self._statuses.fd, self.catch_up)

    def add(self, folder: str, call: "Callable[[bytes], None]") -> "tuple[int, int]":
        """Watch a session's folder; ``call`` gets the names of files written in its ``s``."""
        number = self._statuses.watch(folder + "/s", False)
        try:
            begun = self._begun.watch(folder + "/b", False)
        except OSError:
            self._statuses.unwatch(number)
            raise
        self._calls[number] = call
        self._seen[begun] = False
        return number, begun

    def watch_stdin(self, folder: str, on: bool) -> None:
        """Start or stop reporting when ``stdin`` in the session's ``s`` is opened."""
        try:
            self._statuses.watch(folder + "/s", on)
        except OSError:
            if on:  # fails if the folder was removed, and then no process can open a file in it
                raise

    def remove(self, numbers: "tuple[int, int]") -> None:
        """Stop watching."""
        self._statuses.unwatch(numbers[0])
        self._begun.unwatch(numbers[1])
        del self._calls[numbers[0]]
        del self._seen[numbers[1]]

    def expect(self, numbers: "tuple[int, int]", pid: int) -> None:
        """Do nothing: the kernel reports what the shell with this pid does with its input."""

    def has_begun(self, numbers: "tuple[int, int]") -> bool:
        """Whether a command of that session has begun since the last call."""
        number = numbers[1]
        for seen, _, _ in self._begun.read():
            if seen in self._seen:
                self._seen[seen] = True
        answer = self._seen[number]
        self._seen[number] = False
        return answer

    def catch_up(self) -> None:
        """Report all files opened so far."""
        for number, name, written in self._statuses.read():
            call = self._calls.get(number)
            if call is not None and written != (name == b"stdin"):  # the guest itself closes stdin
                call(name)
