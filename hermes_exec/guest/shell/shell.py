"""One live shell process: its FIFO, pipes, watches and state on disk. ``session`` decides what it runs."""

import _signal
import fcntl
import os
from _collections import deque

from ..core import process_tree
from ..process import runner
from ..streams.output_stream import waiting_bytes
from . import shell_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Deque

    from ..core.loop import Loop, Timer
    from .folders import ShellSpec
    from .inotify_watcher import InotifyWatcher
    from .polling_watcher import PollingWatcher

_ATOMIC = 4096  # PIPE_BUF on Linux; a shell reads a FIFO byte by byte, so longer text goes through a file
_HIGH = 10  # above the numbers that descriptors get in started programs
_END_S = 0.3  # seconds that an ending shell has to write its state


class LiveShell:
    """A shell process.

    ``outputs`` are the ends that it writes to, closed here in any case. ``on_opened`` gets the names of the files that
    it
    opens in its ``s``, ``on_exit`` its wait status.
    """

    def __init__(
        self,
        loop: "Loop",
        watches: "InotifyWatcher | PollingWatcher",
        recipe: "ShellSpec",
        outputs: "list[int]",
        on_opened: "Callable[[bytes], None]",
        on_exit: "Callable[[int], None]",
    ) -> None:
        self.folder = recipe.folder
        self._loop = loop
        self._watches = watches
        self._dialect = recipe.dialect
        self._queue: "Deque[bytes]" = deque()
        self._on_exit = on_exit
        self._kill_timer: "Timer | None" = None
        self.kept: "set[process_tree.Process]" = set()
        self._fifo = self._children = -1
        try:
            self._numbers = watches.add(recipe.folder, on_opened)
            try:
                self._fifo = self._make_fifo()
                self._start(recipe, outputs)
            except OSError:
                self._let_go()
                raise
        finally:
            for fd in outputs:
                os.close(fd)
        if not recipe.dialect.bash:
            self.write(recipe.dialect.loop(recipe.login))
        self._children = process_tree.children_file(self.pid)
        loop.on_exit(self.pid, self._handle_exit)

    def _start(self, recipe: "ShellSpec", outputs: "list[int]") -> None:
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        # A login shell gets them as 3 and 4; see shell_text.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH) for fd in outputs] if recipe.login else []
        try:
            fds = [null, null, null, *high] if recipe.login else [null, *outputs]
            self.pid = runner.fork_exec(recipe.program, recipe.argv(), recipe.env, fds)
        except OSError as error:
            raise OSError(error.errno, "{}: {}".format(os.fsdecode(recipe.program), error.strerror)) from error
        finally:
            for fd in (null, *high):
                os.close(fd)

    def _make_fifo(self) -> int:
        path = self.folder + "/in"
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        os.mkfifo(path, 0o600)
        return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def write(self, text: bytes) -> None:
        """Write text to the FIFO that the loop reads."""
        self._watches.expect(self._numbers, self.pid)
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
        """Evaluate a command; through a file when it is long or ``wrap`` surrounds it.

        ``first`` is text of the guest that the loop evaluates before.
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

    def watch_stdin(self, on: bool) -> None:
        """Start or stop reporting when it opens ``stdin`` in its ``s``."""
        self._watches.watch_stdin(self.folder, on)

    def has_begun(self) -> bool:
        """Whether a command has begun since the last call."""
        return self._watches.has_begun(self._numbers)

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for a command: it sleeps and reads the FIFO."""
        if process_tree.stat(self.pid)[0] != b"S":
            return False  # it may have read a command and wait for the CPU
        return self._reads_fifo() and not self._queue and not waiting_bytes(self._fifo)

    def _reads_fifo(self) -> bool:
        """Whether it reads the FIFO: bash has it as standard input only then; for others the kernel knows."""
        number = "0"
        try:
            if not self._dialect.bash:
                number = str(int(process_tree.read_file("/proc/{}/syscall".format(self.pid)).split()[1], 16))
            name = os.readlink("/proc/{}/fd/{}".format(self.pid, number))
        except (OSError, IndexError, ValueError):
            return False
        return name in (self.folder + "/in", self.folder + "/in (deleted)")

    def writes_to(self, number: int, fd: int) -> bool:
        """Whether its descriptor ``number`` is the pipe whose read end is ``fd``, and not a redirection."""
        try:
            theirs = os.stat("/proc/{}/fd/{}".format(self.pid, number))
        except OSError:
            return False
        return theirs.st_ino == os.fstat(fd).st_ino

    def has_children(self) -> bool:
        """Whether a process that its commands started may still exist."""
        return bool(os.pread(self._children, 64, 0)) if self._children >= 0 else bool(process_tree.children(self.pid))

    def new_pipe(self, number: int) -> "tuple[int, bytes]":
        """Open a pipe for one of its outputs; return our end, and the redirect that makes the shell use it."""
        path = "{}/o{}".format(self.folder, number)
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        os.mkfifo(path, 0o600)
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        return fd, " {}>{}".format(number, path).encode()

    def descendants(self) -> "list[int]":
        """Return the processes that its commands have started and that still exist."""
        return process_tree.descendants([self.pid])

    def new_descendants(self) -> "list[int]":
        """Return the descendants that do not come from earlier commands."""
        return [process[0] for process in process_tree.living_processes(self.descendants()) - self.kept]

    def kill_command(self, grace_s: float, done: "Callable[[list[int]], None]") -> None:
        """End the running command's processes, then the shell, which writes its state if it can.

        The shell is stopped meanwhile, so that it starts no further processes, and dies last, because it is the root of
        its
        process tree.
        """
        self._signal(_signal.SIGSTOP)

        def shell_last(survivors: "list[int]") -> None:
            done(survivors)
            self._signal(_signal.SIGTERM)
            self._signal(_signal.SIGCONT)
            self._kill_timer = self._loop.call_later(_END_S, self.kill)

        process_tree.TreeKill(self._loop, self.new_descendants, grace_s, shell_last)

    def kill(self) -> None:
        """End the shell alone, at once."""
        self._signal(_signal.SIGKILL)

    def _signal(self, number: int) -> None:
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def _handle_exit(self, status: int) -> None:
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        self._loop.ignore_write(self._fifo)
        self._let_go()
        self._on_exit(status)

    def _let_go(self) -> None:
        for fd in (self._fifo, self._children):
            if fd >= 0:
                os.close(fd)
        self._watches.remove(self._numbers)


def describe_status(status: int) -> str:
    """Return a description of a wait status."""
    return "signal {}".format(status & 127) if status & 127 else "exit code {}".format(status >> 8)


def commit_state(folder: str) -> bool:
    """Adopt the state that the shell has just written, if it is complete; return whether it was."""
    path = folder + "/state.new"
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        size = os.fstat(fd).st_size
        last = os.pread(fd, len(shell_text.COMPLETE), max(0, size - len(shell_text.COMPLETE)))
    finally:
        os.close(fd)
    if last != shell_text.COMPLETE:
        return False
    try:
        os.replace(path, folder + "/state")
    except OSError:
        return False
    return True
