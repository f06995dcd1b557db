"""A watcher of sessions without inotify, whose instances are limited per user and may be used up.

It has the interface of ``InotifyWatcher`` and polls: each file that a shell has opened is removed after it was seen,
so that its next appearance is a new event. It adds some milliseconds to each command.
"""

import os

from ..core import process_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..core.loop import Loop, Timer

_FASTEST_S, _SLOWEST_S = 0.001, 0.015
_IDLE_S = 0.25


class PollingWatcher:
    """A replacement of ``InotifyWatcher`` that polls."""

    note = "its shell is watched by polling, which is slower, for want of inotify (fs.inotify.max_user_instances)"

    def __init__(self, loop: "Loop") -> None:
        self._loop = loop
        self._sessions: "dict[int, tuple[str, Callable[[bytes], None]]]" = {}
        self._stdin: "set[str]" = set()
        self._owing: "dict[int, int]" = {}
        self._last = 0
        self._pause = _FASTEST_S
        self._timer: "Timer | None" = None

    def add(self, folder: str, call: "Callable[[bytes], None]") -> "tuple[int, int]":
        """Watch a session's folder; ``call`` gets the names of files opened in its ``s``."""
        for name in _list_opened(folder):
            os.unlink("{}/s/{}".format(folder, name))
        _take(folder + "/b")
        self._last += 1
        self._sessions[self._last] = (folder, call)
        self.expect((self._last, self._last), 0)
        return self._last, self._last

    def watch_stdin(self, folder: str, on: bool) -> None:
        """Start or stop reporting when ``stdin`` in the session's ``s`` is opened."""
        if on:
            self._stdin.add(folder)
        else:
            self._stdin.discard(folder)

    def remove(self, numbers: "tuple[int, int]") -> None:
        """Stop watching."""
        self._owing.pop(numbers[0], None)
        self._stdin.discard(self._sessions.pop(numbers[0])[0])

    def has_begun(self, numbers: "tuple[int, int]") -> bool:
        """Whether a command of that session has begun since the last call."""
        return _take(self._sessions[numbers[0]][0] + "/b")

    def expect(self, numbers: "tuple[int, int]", pid: int) -> None:
        """Poll soon, then at growing intervals: the shell with this pid got input."""
        self._owing[numbers[0]] = pid
        self._pause = _FASTEST_S
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._pause, self._look)

    def catch_up(self) -> None:
        """Report all files opened so far."""
        if self._timer is not None:
            self._timer.cancel()
        self._look()

    def _look(self) -> None:
        self._timer = None
        for number, (folder, call) in list(self._sessions.items()):
            if folder in self._stdin and _is_open(folder + "/s/stdin"):
                self._stdin.discard(folder)
                call(b"stdin")
            for name in _list_opened(folder):
                path = "{}/s/{}".format(folder, name)
                if number in self._sessions and not _writes_to(self._owing.get(number, 0), path) and _take(path):
                    if name.isdigit():
                        self._owing.pop(number, None)
                    call(name.encode())
        if self._sessions and self._timer is None:
            self._pause = min(2 * self._pause, _SLOWEST_S) if self._owing else _IDLE_S
            self._timer = self._loop.call_later(self._pause, self._look)


def _list_opened(folder: str) -> "list[str]":
    """Return the files that a shell has opened; the status is last, as the shell opens it last."""
    try:
        names = os.listdir(folder + "/s")
    except OSError:
        return []  # the folder was removed; the end of the shell reports that
    return sorted((name for name in names if name != "stdin"), key=lambda name: (name.isdigit(), name))


def _writes_to(pid: int, path: str) -> bool:
    """Whether a shell has this file open as its standard output."""
    try:
        return os.readlink("/proc/{}/fd/1".format(pid)) == path
    except OSError:
        return False


def _take(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


def _is_open(path: str) -> bool:
    """Whether a process below the guest has opened a FIFO that the guest holds too."""
    for pid in process_tree.descendants([os.getpid()]):
        fds = "/proc/{}/fd/".format(pid)
        try:
            if any(os.readlink(fds + fd) == path for fd in os.listdir(fds)):
                return True
        except OSError:
            continue  # it has just ended, or closed a descriptor
    return False
