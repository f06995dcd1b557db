"""Jobs: commands that belong to the guest rather than to a client, so they outlive every connection.

A job ends when its program ends; what the program left running is ended then too. Its log and status stay
until somebody prunes them, or ``KEEP_S`` seconds. As long as there is any job, running or ended, the guest stays.
"""

import errno
import os
import time

from . import runner, tree, wire
from .command import Command
from .joblog import Log, Reader
from .loop import now
from .process import Pool, Runner
from .session import default_shell, remove_folder, write_file
from .streams import Inlet, enlarge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from .client import Request
    from .loop import Timer
    from .server import Server

CAP_S = 86400.0
"""A job is ended after this time unless it was started with another."""
KEEP_S = 86400.0
"""How long an ended job is remembered."""
LOG_CAP = 1 << 30
_MOST = 4096
_SHOWN = 1024
"""Bytes of a command that its status repeats."""
_LARGE = 100 << 10
_GRACE_S = 2.0
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_FULL_LOG = "its log is full, so it waits when it writes"


class _Alone(Pool):
    """For the runner of one job, which is never used again."""

    def give_back(self, used: Runner, left: bool) -> None:
        """Keep it: it holds together what the program left behind."""


class _Feed(Inlet):
    """Input for a job; ``done`` is called when all of it was written, or nobody reads any more."""

    def __init__(self, request: "Request", done: "Callable[[], None]") -> None:
        def credit(offset: int) -> None:
            request.client.control(wire.CREDIT, wire.STDIN, request.number, wire.OFFSET.pack(offset))

        super().__init__(request.client.server.loop, credit)
        self._done = done

    def close(self) -> None:
        was_closed = self.closed
        super().close()
        if not was_closed:
            self._done()


class Job:
    """One command, from its start until it is forgotten. ``request`` is answered once it runs."""

    def __init__(self, server: "Server", request: "Request", arguments: "dict[str, Any]", gone: "Callable[[], None]") -> None:
        self.id: str = arguments["job"]
        self.over = False
        self.waiters: "list[Callable[[], None]]" = []
        self.timer: "Timer | None" = None
        self._loop = server.loop
        self._gone = gone
        self._request = request
        self._name: str = arguments.get("name") or ""
        self._command: "bytes | None" = arguments.get("command")
        self._argv: "list[bytes]" = arguments.get("argv") or []
        if bool(self._argv) == (self._command is not None):
            raise ValueError("either a command or an argv")
        self._pid = 0
        self._answer: "dict[str, Any]" = {}
        self._program_over = False
        self._killing: "tree.TreeKill | None" = None
        self._stdin = -1
        self._pipes: "dict[int, int]" = {}
        self._began = now()
        self._started = time.time()
        self._ended: "float | None" = None
        self._confined = Command.confine(server.loop, arguments["limits"]) if arguments.get("limits") else None
        self.log = Log("{}/job-{}".format(server.spool_folder(), self.id), int(arguments.get("log_cap", LOG_CAP)))
        try:
            self._runner = Runner(server.loop, _Alone(server.loop))
            self._launch(arguments)
        except BaseException:
            self._close()
            self.forget()
            raise
        cap = arguments.get("cap_s", CAP_S)
        if cap is not None:
            self.timer = self._loop.call_later(float(cap), lambda: self.stop("timed_out", _GRACE_S))

    def _launch(self, arguments: "dict[str, Any]") -> None:
        client = self._request.client
        fds = [os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)]
        try:
            if arguments.get("stdin"):
                theirs, self._stdin = os.pipe()
                os.set_blocking(self._stdin, False)
                os.dup2(theirs, fds[0], False)
                os.close(theirs)
            for channel in (wire.STDOUT, wire.STDERR):
                ours, theirs = os.pipe()
                fds.append(theirs)
                os.set_blocking(ours, False)
                self._pipes[channel] = ours
                self._loop.on_read(ours, lambda channel=channel: self._pump(channel))  # type: ignore[misc]
            env = dict(client.env)
            env.update(arguments.get("env") or {})
            spec = {"argv": self._words(), "env": env, "cwd": arguments.get("cwd") or client.cwd}
            if self._confined is not None:
                spec["confine"] = self._confined.spec()
                self._confined.begin()
            self._runner.start(spec, fds, self._program_ended, self._program_started)
        finally:
            for fd in fds:
                os.close(fd)

    def _words(self) -> "list[bytes]":
        if self._command is None:
            return self._argv
        if len(self._command) < _LARGE:
            return [default_shell(), b"-c", self._command]
        path = self.log.folder + "/script"  # too large for one word of an argv
        write_file(path, self._command)
        return [default_shell(), b"-c", b'. "$0"', path.encode()]

    def _program_started(self, pid: int) -> None:
        self._pid = pid
        self._request.finish({"job": self.status()})

    def _program_ended(self, kind: int, value: int) -> None:
        self._program_over = True
        if kind == runner.ENDED:
            self._answer["signal" if os.WIFSIGNALED(value) else "code"] = (
                os.WTERMSIG(value) if os.WIFSIGNALED(value) else os.WEXITSTATUS(value)
            )
            self._end(_GRACE_S)
            return
        self._close()
        self._gone()
        words = {runner.NO_FOLDER: "cwd", runner.NO_PROGRAM: "program"}
        self._request.finish({"error": words.get(kind, "os"), "errno": value, "message": os.strerror(value)})

    def _pump(self, channel: int) -> None:
        fd = self._pipes[channel]
        room = self.log.room
        if not room:
            for pipe in self._pipes.values():
                self._loop.ignore_read(pipe)
            return
        try:
            data = os.read(fd, min(wire.CHUNK, room))
        except BlockingIOError:
            return
        if not data:
            self._loop.ignore_read(fd)
            return
        if len(data) >= 65536:
            enlarge(fd)
        self._keep(channel, data)

    def _keep(self, channel: int, data: bytes) -> None:
        try:
            self.log.append(channel, data)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            why = "the place's disk was full" if full else "its log could not be written ({})".format(error.strerror)
            self._answer.setdefault("note", why + ": it was stopped, and its log ends there")
            self._answer.setdefault("cancelled", True)
            for pipe in self._pipes.values():
                self._loop.ignore_read(pipe)
            self._end(0.0)

    def stop(self, why: str, grace_s: float) -> None:
        """End it with all that it started: TERM, and KILL after the grace."""
        if not self.over:
            if not self._program_over and "timed_out" not in self._answer:
                self._answer.setdefault(why, True)
            self._end(grace_s)

    def _end(self, grace_s: float) -> None:
        if self._killing is not None:
            self._killing.hurry(grace_s)
        elif not self.over:
            self._killing = tree.TreeKill(
                self._loop, self._tree, grace_s, lambda pids: self._loop.call_soon(lambda: self._killed(pids))
            )

    def _tree(self) -> "list[int]":
        if tree.stat(self._runner.pid)[0] in (b"", b"Z"):  # somebody killed the runner: what is below the program
            return [self._pid] + tree.descendants([self._pid]) if not self._program_over else []
        return tree.descendants([self._runner.pid])

    def _killed(self, pids: "list[int]") -> None:
        self._killing = None
        if pids:
            self._answer["note"] = "these processes could not be ended: {}".format(pids)
        if self._program_over:
            self._finish()
        elif pids:
            self._tell()
        else:  # the runner had not started it yet, or is about to tell its end
            self._loop.call_later(0.01, lambda: self._end(0.0))

    def _finish(self) -> None:
        for channel, fd in self._pipes.items():
            self._loop.ignore_read(fd)
            self._rest(channel, fd)
        self._answer["duration"] = now() - self._began
        self._ended = time.time()
        self.over = True
        self._close()
        self._tell()
        self._gone()

    def _rest(self, channel: int, fd: int) -> None:
        """What is still in a pipe, also beyond the log's cap, so that nothing is dropped."""
        while "note" not in self._answer:
            try:
                data = os.read(fd, wire.CHUNK)
            except BlockingIOError:
                return
            if not data:
                return
            self._keep(channel, data)

    def _tell(self) -> None:
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter()

    def take_input(self, request: "Request", last: bool) -> None:
        """Write what the request brings to the job's standard input; after the ``last`` one it ends."""
        if self._stdin < 0:
            request.fail("closed", "the job's standard input is closed")
            return

        def done() -> None:
            if last:
                self.close_stdin()
            request.finish({})

        feed = request.inlet = _Feed(request, done)
        request.cancel = feed.close
        feed.write_to(os.dup(self._stdin))

    def close_stdin(self) -> None:
        """No more input."""
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    def status(self) -> "dict[str, Any]":
        """What is known of it."""
        waits = not self.over and not self.log.room
        answer = dict(self._answer)
        if waits:
            answer.setdefault("note", _FULL_LOG)
        answer.setdefault("duration", now() - self._began)
        words = [self._command] if self._command is not None else self._argv
        return {
            "job": self.id,
            "name": self._name,
            "state": "ended" if self.over else "waiting" if waits else "running",
            "shell": self._command is not None,
            "command": b" ".join(words)[:_SHOWN],
            "pid": self._pid,
            "started": self._started,
            "ended": self._ended,
            "log": self.log.sizes,
            "answer": answer,
        }

    def _close(self) -> None:
        """Let go of everything but the log and the status."""
        self.close_stdin()
        if self.timer is not None:
            self.timer.cancel()
        for fd in self._pipes.values():
            self._loop.ignore_read(fd)
            os.close(fd)
        self._pipes = {}
        if self._confined is not None:
            self._confined.end(self._answer)
        if hasattr(self, "_runner"):
            self._runner.close()
        self.log.close()

    def forget(self) -> None:
        """Remove its log."""
        if self.timer is not None:
            self.timer.cancel()
        remove_folder(self.log.folder)
