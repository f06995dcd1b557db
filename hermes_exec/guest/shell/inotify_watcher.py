"""A watcher of sessions by inotify, with one pair of instances per guest; see also ``polling_watcher``."""

from ..streams import inotify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..core.loop import Loop


class InotifyWatcher:
    """A watcher of session folders: one inotify instance for statuses, one for command starts, which is only polled."""

    note = ""

    def __init__(self, loop: "Loop") -> None:
        self._statuses = inotify.Inotify()
        try:
            self._begun = inotify.Inotify()
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
