"""One live shell process: its FIFO, its pipes and its state on disk. ``session`` decides what it runs."""

import _signal
import fcntl
import os
from _collections import deque

from . import inotify, runner, shelltext, tree
from .outlet import waiting_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Deque

    from .loop import Loop, Timer

_ATOMIC = 4096  # PIPE_BUF on Linux; also, a shell reads a FIFO byte by byte, so longer text goes by file
_HIGH = 10  # above the numbers that descriptors get in what is started
_END_S = 0.3  # a shell that was told to end has this long to write its state


class Watches:
    """Which session's folder was touched: one inotify for statuses, one for beginnings, only looked at."""

    note = ""

    def __init__(self, loop: "Loop") -> None:
        self._statuses = inotify.Touched()
        try:
            self._begun = inotify.Touched()
        except OSError:
            self._statuses.close()
            raise
        self._seen: "dict[int, bool]" = {}
        self._calls: "dict[int, Callable[[bytes], None]]" = {}
        loop.on_read(self._statuses.fd, self.catch_up)

    def add(self, folder: str, call: "Callable[[bytes], None]") -> "tuple[int, int]":
        """Watch a session's folder; ``call`` gets the names of what is written in its ``s``."""
        number = self._statuses.watch(folder + "/s", False)
        begun = self._begun.watch(folder + "/b", False)
        self._calls[number] = call
        self._seen[begun] = False
        return number, begun

    def see_stdin(self, folder: str, on: bool) -> None:
        """Tell, or no longer tell, when ``stdin`` in the session's ``s`` is opened."""
        self._statuses.watch(folder + "/s", on)

    def remove(self, numbers: "tuple[int, int]") -> None:
        """Stop watching."""
        self._statuses.unwatch(numbers[0])
        self._begun.unwatch(numbers[1])
        del self._calls[numbers[0]]
        del self._seen[numbers[1]]

    def expect(self, numbers: "tuple[int, int]") -> None:
        """A session's shell was given something to do, which the kernel will tell the outcome of."""

    def begun(self, numbers: "tuple[int, int]") -> bool:
        """Whether a command of that session has begun since this was last asked."""
        number = numbers[1]
        for seen, _, _ in self._begun.read():
            if seen in self._seen:
                self._seen[seen] = True
        answer = self._seen[number]
        self._seen[number] = False
        return answer

    def catch_up(self) -> None:
        """Call for all that was opened so far."""
        for number, name, written in self._statuses.read():
            call = self._calls.get(number)
            if call is not None and written != (name == b"stdin"):  # that one we close ourselves
                call(name)


def _nothing() -> None:
    """Nobody wants to know yet."""


class Shell:
    """A shell process. ``on_opened`` gets the names it opens, ``on_exit`` its wait status."""

    def __init__(
        self,
        loop: "Loop",
        folder: str,
        dialect: shelltext.Dialect,
        program: "list[bytes]",
        env: "dict[bytes, bytes]",
        outputs: "list[int]",
        on_exit: "Callable[[int], None]",
    ) -> None:
        self.folder = folder
        self._loop = loop
        self._dialect = dialect
        self._queue: "Deque[bytes]" = deque()
        self.on_write: "Callable[[], None]" = _nothing
        self._on_exit = on_exit
        self._kill_timer: "Timer | None" = None
        self.kept: "set[tree.Process]" = set()
        self._fifo = self._make_fifo()
        self._children = -1
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        login = bool(program[1])
        # A login shell gets them as 3 and 4; see shelltext.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH) for fd in outputs] if login else []
        try:
            fds = [null, null, null, *high] if login else [null, *outputs]
            self.pid = runner.fork_exec(program[0], self._argv(*program), env, fds)
        except OSError as error:
            os.close(self._fifo)
            raise OSError(error.errno, "{}: {}".format(os.fsdecode(program[0]), error.strerror)) from error
        finally:
            for fd in (null, *high):
                os.close(fd)
        if not dialect.bash:
            self.write(dialect.loop(login))
        self._children = tree.children_file(self.pid)
        loop.on_exit(self.pid, self._exited)

    def _argv(self, program: bytes, login: bytes) -> "list[bytes]":
        name = os.path.basename(program)
        argv = [b"-" + name if login else name]
        if not self._dialect.bash:
            return [*argv, self.folder.encode() + b"/in"]
        argv += [b"--login"] if login else [b"--norc", b"--noprofile"]
        return [*argv, b"-c", self._dialect.loop(bool(login)), name]

    def _make_fifo(self) -> int:
        path = self.folder + "/in"
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        os.mkfifo(path, 0o600)
        return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def write(self, text: bytes) -> None:
        """Give text to the loop."""
        self.on_write()
        try:
            done = os.write(self._fifo, text)
        except BlockingIOError:
            done = 0
        if done < len(text):
            self._queue.append(text[done:])
            self._loop.on_write(self._fifo, self._write_on)

    def _write_on(self) -> None:
        text = self._queue.popleft()
        self._loop.ignore_write(self._fifo)
        self.write(text)

    def run(self, command: bytes, wrap: bytes = b"%s", first: bytes = b"") -> None:
        """Evaluate a command; by file when it is long, or when ``wrap`` has to stand around it.

        ``first`` is text of ours that the loop evaluates before.
        """
        if self._dialect.bash and wrap == b"%s":
            text = first + (command or b":") + b"\0"
            if len(text) <= _ATOMIC:
                self.write(text)
                return
        fd = os.open(self.folder + "/c", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            content = memoryview(self._dialect.file(command))
            while content:
                content = content[os.write(fd, content) :]
        finally:
            os.close(fd)
        self.write(first + self._dialect.from_file(wrap))

    @property
    def waits(self) -> bool:
        """True when it waits for a command: it sleeps, and its standard input is the FIFO then, and only then."""
        if tree.stat(self.pid)[0] != b"S":
            return False  # it may have read a command, and wait for the processor
        try:
            at_fifo = os.readlink("/proc/{}/fd/0".format(self.pid)) == self.folder + "/in"
        except OSError:
            return False
        return at_fifo and not self._queue and not waiting_bytes(self._fifo)

    def writes_to(self, number: int, fd: int) -> bool:
        """Whether its descriptor ``number`` is the pipe whose read end is ``fd``, and not a place of the user's."""
        try:
            theirs = os.stat("/proc/{}/fd/{}".format(self.pid, number))
        except OSError:
            return False
        return theirs.st_ino == os.fstat(fd).st_ino

    def has_children(self) -> bool:
        """Whether anything that its commands started may still exist."""
        return bool(os.pread(self._children, 64, 0)) if self._children >= 0 else bool(tree.children(self.pid))

    def new_pipe(self, number: int) -> "tuple[int, bytes]":
        """A new pipe for one of its outputs: our end, and the redirect that makes the shell use it."""
        path = "{}/o{}".format(self.folder, number)
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        os.mkfifo(path, 0o600)
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        return fd, " {}>{}".format(number, path).encode()

    def descendants(self) -> "list[int]":
        """Everything that its commands have started and that still exists."""
        return tree.descendants([self.pid])

    def new_descendants(self) -> "list[int]":
        """Those that are not of earlier commands."""
        return [process[0] for process in tree.living(self.descendants()) - self.kept]

    def kill_command(self, grace_s: float, done: "Callable[[list[int]], None]") -> None:
        """End what the running command started, then the shell, which writes its state if it can.

        It is stopped meanwhile, so that it starts nothing more, and dies last, because it holds its
        tree together.
        """
        self._signal(_signal.SIGSTOP)

        def shell_last(survivors: "list[int]") -> None:
            done(survivors)
            self._signal(_signal.SIGTERM)
            self._signal(_signal.SIGCONT)
            self._kill_timer = self._loop.call_later(_END_S, self.kill)

        tree.TreeKill(self._loop, self.new_descendants, grace_s, shell_last)

    def kill(self) -> None:
        """End the shell alone, at once."""
        self._signal(_signal.SIGKILL)

    def _signal(self, number: int) -> None:
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def _exited(self, status: int) -> None:
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        self._loop.ignore_write(self._fifo)
        os.close(self._fifo)
        if self._children >= 0:
            os.close(self._children)
        self._on_exit(status)


def complete_state(folder: str) -> bool:
    """Take over the state that the shell has just written, if it is whole; whether it was."""
    path = folder + "/state.new"
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        size = os.fstat(fd).st_size
        last = os.pread(fd, len(shelltext.COMPLETE), max(0, size - len(shelltext.COMPLETE)))
    finally:
        os.close(fd)
    if last != shelltext.COMPLETE:
        return False
    os.replace(path, folder + "/state")
    return True
