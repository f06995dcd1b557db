"""One job: a program below its own runner, its output and its process tree."""

import errno
import os
import time

from ..core import process_tree, wire
from ..core.fdutil import enlarge_pipe, remove_folder
from ..core.loop import now
from ..process import runner
from ..process.command import CommandRequest, add_note, default_shell, resolve_folder
from ..process.process import Runner, RunnerPool
from ..process.runner import open_pipes
from ..shell.folders import write_file
from ..streams.input_stream import InputStream
from .job_log import JobLogFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..core.loop import Loop, Timer
    from ..core.server import Request
    from ..limits.confinement import CommandLimits


LOG_CAP = 1 << 30
GRACE_S = 2.0
_SHOWN = 1024
"""Bytes of a command that its status repeats."""
_LARGE = 100 << 10
"""Kernels refuse an argument over 128 KiB, so the shell gets longer commands through a file."""
_LONGEST_NAME = 256
_FULL_LOG = "its log is full"
_ERRORS = {
    runner.NO_FOLDER: "cwd",
    runner.NO_PROGRAM: "program",
    runner.NO_LIMITS: "unsupported",
    runner.NO_ROOM: "os",
}


class _Alone(RunnerPool):
    """A runner pool for the runner of one job, which is never reused."""

    def give_back(self, used: Runner, left: bool) -> None:
        """Keep the runner, the subreaper of the processes that the program left behind."""


class GuestJob:
    """A job from its start, which answers ``request``, until it is forgotten.

    ``on_end`` is called when it has ended or could not be started (``started`` is False then).
    """

    def __init__(self, request: "Request", arguments: "dict[str, Any]", on_end: "Callable[[GuestJob], None]") -> None:
        server = request.client.server
        self.id: str = arguments["job"]
        self.over = False
        self.unwanted = False  # it is forgotten as soon as it has ended
        self.input = JobInput()
        self.timer: "Timer | None" = None  # first for the time limit, later for forgetting the job
        self.on_over: "list[Callable[[], None]]" = []
        self.on_killed: "list[Callable[[], None]]" = []
        self._loop = server.loop
        self._on_end = on_end
        self._request = request
        self._name: str = arguments.get("name") or ""
        self._command: "bytes | None" = arguments.get("command")
        self._argv: "list[bytes]" = arguments.get("argv") or []
        if bool(self._argv) == (self._command is not None) or len(self._name) > _LONGEST_NAME:
            raise ValueError("either a command or an argv, and a name of {} characters".format(_LONGEST_NAME))
        self._shown = _shorten(self._argv) if self._command is None else self._command[:_SHOWN]
        self._main: "process_tree.Process" = (0, 0)
        self._answer: "dict[str, Any]" = {}
        self._program_over = self._refused = False
        self._killing: "process_tree.TreeKill | None" = None
        self._began = now()
        self._started = time.time()
        self._ended: "float | None" = None
        self._confined: "CommandLimits | None" = None
        folder = server.spool_folder() + "/job-" + self.id
        self._closers: "list[Callable[[], None]]" = []
        try:
            self._runner = Runner(server.loop, _Alone(server.loop))
            self._closers.append(self._runner.close)
            if arguments.get("limits"):
                self._confined = CommandRequest.confine(server.loop, arguments["limits"])
                self._closers.append(self._end_confinement)
            self.log = JobLogFile(folder, int(arguments.get("log_cap") or LOG_CAP))
            self._recorder = JobLogRecorder(server.loop, self.log, self._log_failed)
            self._closers += [self.log.close, self._recorder.close, self.input.close]
            self._launch(arguments)
        except BaseException:
            self._close()
            remove_folder(folder)
            raise

    @property
    def started(self) -> bool:
        """Whether its program could be started."""
        return not self._refused

    def _launch(self, arguments: "dict[str, Any]") -> None:
        client = self._request.client
        env = dict(client.env)
        env.update(arguments.get("env") or {})
        spec: "dict[str, Any]" = {
            "argv": self._words(),
            "env": env,
            "cwd": resolve_folder(client, arguments.get("cwd")),
        }
        if self._confined is not None:
            spec["confine"] = self._confined.spec()
            self._confined.begin()
        fds = [self.input.open() if arguments.get("stdin") else os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)]
        try:
            fds += self._recorder.open()
            self._runner.start(spec, fds, self._program_ended, self._program_started)
        finally:
            for fd in fds:
                os.close(fd)

    def _words(self) -> "list[bytes]":
        if self._command is None:
            return self._argv
        if len(self._command) < _LARGE:
            return [default_shell(), b"-c", self._command]
        path = self.log.folder + "/script"
        write_file(path, self._command)
        return [default_shell(), b"-c", b'. "$0"', path.encode()]

    def _program_started(self, pid: int) -> None:
        self._main = (pid, process_tree.stat(pid)[2])
        self._request.finish({"job": self.status()})

    def _program_ended(self, kind: int, value: int) -> None:
        self._program_over = True
        if kind == runner.ENDED:
            if os.WIFSIGNALED(value):
                self._answer["signal"] = os.WTERMSIG(value)
            else:
                self._answer["code"] = os.WEXITSTATUS(value)
            self._request.finish({"job": self.status()})  # used only if its runner was killed before it replied
            self._end(GRACE_S)
            return
        self._refused = True
        self._close()
        error = _ERRORS[kind]
        message = ("its limits could not be set: " if error == "unsupported" else "") + os.strerror(value)
        self._request.fail(error, message, value)
        self._on_end(self)

    def _log_failed(self, why: str) -> None:
        self._answer.setdefault("note", why + ": it was stopped, and its log ends there")
        self._answer.setdefault("cancelled", True)
        self._end(0.0)

    def stop(self, why: str, grace_s: float) -> None:
        """End the job and its process tree: TERM, then KILL after the grace period."""
        if not self._program_over and "timed_out" not in self._answer:
            self._answer.setdefault(why, True)
        self._end(grace_s)

    def _end(self, grace_s: float) -> None:
        if self._killing is not None:
            self._killing.hurry(grace_s)
        elif not self.over:
            self._killing = process_tree.TreeKill(
                self._loop, self._tree, grace_s, lambda pids: self._loop.call_soon(lambda: self._on_kill(pids))
            )

    def _tree(self) -> "list[int]":
        found = process_tree.descendants([self._runner.pid])
        pid = self._main[0]
        if not found and pid and self._main in process_tree.living_processes([pid]):  # the runner was killed
            found = [pid, *process_tree.descendants([pid])]
        return found

    def _on_kill(self, pids: "list[int]") -> None:
        self._killing = None
        if pids:
            self._answer["note"] = "these processes could not be ended: {}".format(pids)
        if self._program_over:
            self._finish()
        elif pids:
            _call_all(self.on_killed)
        else:  # the runner has not started it yet, or is about to report its end
            self._loop.call_later(0.01, lambda: self._end(0.0))

    def _finish(self) -> None:
        self.over = True
        self._answer["duration"] = now() - self._began
        self._ended = time.time()
        add_note(self._request.client, self._answer)
        self._close()
        _call_all(self.on_killed)
        _call_all(self.on_over)
        self._on_end(self)

    def status(self) -> "dict[str, Any]":
        """Return the status of the job."""
        waits = not self.over and not self.log.room
        answer = dict(self._answer)
        if waits:
            answer.setdefault("note", _FULL_LOG)
        answer.setdefault("duration", now() - self._began)
        return {
            "job": self.id,
            "name": self._name,
            "state": "ended" if self.over else "waiting" if waits else "running",
            "command": self._shown,
            "pid": self._main[0],
            "started": self._started,
            "ended": self._ended,
            "log": list(self.log.sizes),
            "answer": answer,
        }

    def _close(self) -> None:
        """Release everything but the log's files and the status."""
        if self.timer is not None:
            self.timer.cancel()
        while self._closers:
            self._closers.pop()()

    def _end_confinement(self) -> None:
        if self._confined is not None:
            self._confined.end(self._answer)

    def forget(self) -> None:
        """Remove its log."""
        if self.timer is not None:
            self.timer.cancel()
        remove_folder(self.log.folder)


def _shorten(words: "list[bytes]") -> "list[bytes]":
    """Return the first arguments, cut to the number of bytes that a status shows."""
    left = _SHOWN
    shown: "list[bytes]" = []
    for word in words:
        if left <= 0:
            break
        shown.append(word[:left])
        left -= len(word) + 8  # the overhead of one argument in the reply
    return shown


def _call_all(calls: "list[Callable[[], None]]") -> None:
    waiting = list(calls)
    calls.clear()
    for call in waiting:
        call()


class JobLogRecorder:
    """A reader of a job's two outputs into its log; the job waits while the log is full.

    ``on_failure`` is called with the reason when no more output can be kept.
    """

    def __init__(self, loop: "Loop", log: "JobLogFile", on_failure: "Callable[[str], None]") -> None:
        self._loop = loop
        self._log = log
        self._on_failure = on_failure
        self._pipes: "dict[int, int]" = {}

    def open(self) -> "list[int]":
        """Open new pipes; return the write ends for standard output and standard error."""
        theirs: "list[int]" = []
        for channel, (ours, end) in zip((wire.STDOUT, wire.STDERR), open_pipes(2)):
            self._pipes[channel] = ours
            theirs.append(end)
            os.set_blocking(self._pipes[channel], False)
            self._watch(channel, self._pipes[channel])
        return theirs

    def _watch(self, channel: int, fd: int) -> None:
        self._loop.on_read(fd, lambda: self._read(channel, fd))

    def _read(self, channel: int, fd: int) -> None:
        room = self._log.room
        if not room:
            self._ignore()
            return
        try:
            data = os.read(fd, min(wire.CHUNK, room))
        except BlockingIOError:
            return
        if not data:
            self._loop.ignore_read(fd)
            return
        if len(data) >= 65536:
            enlarge_pipe(fd)
        self._keep(channel, data)

    def _keep(self, channel: int, data: bytes) -> bool:
        try:
            self._log.append(channel, data)
        except OSError as error:
            self._ignore()
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            self._on_failure(
                "the target's disk was full" if full else "its log could not be written ({})".format(error.strerror)
            )
            return False
        return True

    def _ignore(self) -> None:
        for fd in self._pipes.values():
            self._loop.ignore_read(fd)

    def close(self) -> None:
        """Close the pipes after the last byte, which is kept even beyond the log's cap."""
        self._ignore()
        for channel, fd in self._pipes.items():
            while self._rest(channel, fd):
                pass
            os.close(fd)
        self._pipes = {}

    def _rest(self, channel: int, fd: int) -> bool:
        try:
            data = os.read(fd, wire.CHUNK)
        except BlockingIOError:
            return False
        return bool(data) and self._keep(channel, data)


class JobInput:
    """The standard input of a job, written by any number of requests, one after the other."""

    def __init__(self) -> None:
        self._fd = -1

    def open(self) -> int:
        """Open a new pipe; return the read end for the job."""
        theirs, self._fd = os.pipe()
        os.set_blocking(self._fd, False)
        return theirs

    def take(self, request: "Request", last: bool) -> None:
        """Write the request's input, then answer it; after the ``last`` request the input ends."""
        if self._fd < 0:
            request.fail("closed", "the job's standard input is closed")
            return

        def on_write() -> None:
            if last:
                self.close()
            request.finish({})

        feed = request.input = _Feed(request, on_write)
        request.cancel = feed.close
        feed.write_to(os.dup(self._fd))

    def close(self) -> None:
        """End the input."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _Feed(InputStream):
    """The input of one request; ``done`` is called when all of it was written, or the reader is gone."""

    def __init__(self, request: "Request", on_write: "Callable[[], None]") -> None:
        super().__init__(request.client.server.loop, request.send_credit)
        self._done = on_write

    def close(self) -> None:
        """Release the descriptor."""
        if not self.closed:
            super().close()
            self._done()
