"""The common part of all commands: the start folder, a deadline, cancellation, and the fields of the answer.

The ``exec`` operation, a program from an argv list, is the simplest command.
"""

import errno
import os

from ..core import wire
from ..core.loop import now
from ..streams.output_stream import OutputStream, waiting_bytes
from . import runner
from .process import RunnerPool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..core.loop import Loop, Timer
    from ..core.server import Client, GuestServer, Request
    from ..limits.confinement import CommandLimits
    from .process import Runner


def resolve_folder(client: "Client", path: "bytes | None") -> bytes:
    """Return a folder relative to the client's start folder: the home, or / where none can be entered.

    The start folder is determined once, as at a login: if the home vanishes later, that is an error, not a reason
    to run elsewhere.
    """
    if client.cwd[:1] != b"/":
        home = os.environb.get(b"HOME") or b"/"
        try:
            os.stat(os.path.join(home, b"."))
        except OSError as error:
            client.note = "commands start in /, because of the home {}: {}".format(os.fsdecode(home), error.strerror)
            home = b"/"
        client.cwd = os.path.join(home, client.cwd)
    return os.path.join(client.cwd, path or b"")


def default_shell() -> bytes:
    """Return the best shell of this target."""
    for path in (b"/bin/bash", b"/usr/bin/bash", b"/usr/local/bin/bash"):
        if os.access(path, os.X_OK):
            return path
    return b"/bin/sh"


def describe_error(error: OSError) -> str:
    """Return the failed path and the reason."""
    why = error.strerror or str(error)
    return "{}: {}".format(os.fsdecode(error.filename), why) if error.filename else why


def add_note(client: "Client", answer: "dict[str, Any]") -> None:
    """Add the client's note to the first answer that has no note of its own."""
    if client.note and "note" not in answer:
        answer["note"], client.note = client.note, ""


def _no_limits(_: "Loop", __: "dict[str, Any]") -> "CommandLimits":
    raise ValueError("the part for limits was not sent")


class CommandRequest:
    """A request that runs a command: its time limit, its cancellation, its answer."""

    confine: "Callable[[Loop, dict[str, Any]], CommandLimits]" = staticmethod(_no_limits)
    """The function that prepares the limits of a command; set by the part for limits."""

    def __init__(self, request: "Request", arguments: "dict[str, Any]") -> None:
        self.request = request
        self.arguments = arguments
        self.loop: "Loop" = request.client.server.loop
        self.grace_s = float(arguments.get("grace", 2.0))
        self.answer: "dict[str, Any]" = {}
        self._started = 0.0
        self._deadline: "Timer | None" = None
        limits = arguments.get("limits")
        self.confined = CommandRequest.confine(self.loop, limits) if limits else None
        request.cancel = self.cancel

    def begin(self) -> None:
        """Start the clock of the time limit."""
        self._started = now()
        limit = self.arguments.get("timeout")
        if limit is not None:
            self._deadline = self.loop.call_later(float(limit), self._on_timeout)
        if self.confined is not None:
            self.confined.begin()

    def _on_timeout(self) -> None:
        self.stop("timed_out")

    def cancel(self) -> None:
        """Stop the command at the client's request."""
        self.stop("cancelled")

    def disk_full(self) -> None:
        """Stop the command because the spool's disk is full and output cannot be kept."""
        self.answer["note"] = "the target's disk was full: it was stopped, and its output ends there"
        self.stop("cancelled")

    def stop(self, why: str) -> None:
        """End the process tree; the answer follows when it is gone."""
        if "timed_out" in self.answer or "cancelled" in self.answer:
            return
        self.answer[why] = True
        self.kill()

    def note_survivors(self, pids: "list[int]") -> None:
        """Add a note about processes that a kill could not end to the answer."""
        if pids:
            self.answer["note"] = "these processes could not be ended: {}".format(pids)

    def kill(self) -> None:
        """Start ending the process tree of the command."""
        raise AssertionError("each kind of command has its own")

    def open_outlets(self, merge: bool) -> "list[tuple[OutputStream, int, int]]":
        """Open output pipes: output stream, read end, write end; one for both outputs if ``merge``."""
        pipes: "list[tuple[OutputStream, int, int]]" = []
        channels = (wire.STDOUT,) if merge else (wire.STDOUT, wire.STDERR)
        for channel, (ours, theirs) in zip(channels, runner.open_pipes(len(channels))):
            os.set_blocking(ours, False)
            outlet = self.request.open_output(channel, bulk=True)
            outlet.on_disk_full = self.disk_full
            outlet.read_from(ours)
            pipes.append((outlet, ours, theirs))
        return pipes

    def set_exit_status(self, status: int) -> None:
        """Put a wait status into the answer."""
        if os.WIFSIGNALED(status):
            self.answer["signal"] = os.WTERMSIG(status)
        else:
            self.answer["code"] = os.WEXITSTATUS(status)

    def finish(self) -> None:
        """Send the answer."""
        if self._deadline is not None:
            self._deadline.cancel()
        if self.confined is not None:
            self.confined.end(self.answer)
        self.answer["duration"] = now() - self._started
        add_note(self.request.client, self.answer)
        self.request.finish(self.answer)


class ExecRequest(CommandRequest):
    """A program from an argv list, below a runner."""

    def __init__(self, pool: RunnerPool, request: "Request", arguments: "dict[str, Any]") -> None:
        super().__init__(request, arguments)
        self._over = False
        self._killing = False
        self._cwd: bytes = resolve_folder(request.client, arguments.get("cwd"))
        env = dict(request.client.env)
        env.update(arguments.get("env") or {})
        spec = {
            "argv": arguments["argv"],
            "env": env,
            "cwd": self._cwd,
        }
        if self.confined is not None:
            spec["confine"] = self.confined.spec()
        self._pipes = self.open_outlets(bool(arguments.get("merge")))
        fds = [self._pipes[0][2], self._pipes[-1][2]]
        try:
            stdin = self._stdin() if arguments.get("stdin") else os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
            fds.insert(0, stdin)
            self._runner: "Runner" = pool.start(spec, fds, self._on_end)
        except OSError:
            self._let_go(self._pipes)
            raise
        finally:
            for fd in set(fds):
                os.close(fd)
        self.begin()

    def _stdin(self) -> int:
        theirs, ours = os.pipe()
        os.set_blocking(ours, False)
        self.request.open_input(ours)
        return theirs

    def kill(self) -> None:
        """End the process tree below the runner; the answer waits for that."""
        if not self._over:
            self._killing = True
            self._runner.kill(self.grace_s, self._on_kill)

    def _on_kill(self, pids: "list[int]") -> None:
        self._killing = False
        self.note_survivors(pids)
        if self._over or pids:
            self._deliver()
        else:  # the runner has not started it yet, or is about to report its end
            self.loop.call_later(0.01, self.kill)

    def _on_end(self, kind: int, value: int) -> None:
        self._over = True
        if kind == runner.NO_PROGRAM:
            self.answer.update(error="program", errno=value, message=os.strerror(value))
            self.answer["code"] = 127 if value in (errno.ENOENT, errno.ENOTDIR) else 126
        elif kind == runner.NO_FOLDER:
            message = "{}: {}".format(os.fsdecode(self._cwd), os.strerror(value))
            self.answer.update(error="cwd", errno=value, message=message)
        elif kind == runner.NO_ROOM:
            self.answer.update(error="os", errno=value, message=os.strerror(value))
        elif kind == runner.NO_LIMITS:
            message = "its limits could not be set: " + os.strerror(value)
            self.answer.update(error="unsupported", errno=value, message=message)
        else:
            self.set_exit_status(value)
        if not self._killing:
            self._deliver()

    def _deliver(self) -> None:
        if self._pipes:
            pipes, self._pipes = self._pipes, []
            drain_all([outlet for outlet, _, _ in pipes], lambda: self._on_drain(pipes))

    def _on_drain(self, pipes: "list[tuple[OutputStream, int, int]]") -> None:
        self._let_go(pipes)
        self.finish()

    def _let_go(self, pipes: "list[tuple[OutputStream, int, int]]") -> None:
        for outlet, fd, _ in pipes:
            outlet.release()
            if outlet.ended:
                os.close(fd)
            else:
                PipeDrain(self.loop, fd)
        if self.request.input is not None:
            self.request.input.close()


class PipeDrain:
    """A reader that discards a pipe's bytes until its end, so that a process left behind gets no SIGPIPE."""

    def __init__(self, loop: "Loop", fd: int) -> None:
        self._loop = loop
        self._fd = fd
        loop.on_read(fd, self._read)
        if not waiting_bytes(fd):
            self._read()

    def _read(self) -> None:
        try:
            if os.read(self._fd, 65536):
                return
        except BlockingIOError:
            return
        self._loop.ignore_read(self._fd)
        os.close(self._fd)


def drain_all(outlets: "list[OutputStream]", done: "Callable[[], None]") -> None:
    """Call ``done`` once each output stream has read the bytes now in its pipe."""
    if not outlets:
        return done()
    left = [len(outlets)]

    def one() -> None:
        left[0] -= 1
        if not left[0]:
            done()

    for outlet in outlets:
        outlet.drain(one)
    return None


def install(server: "GuestServer") -> None:
    """Register the ``exec`` operation."""
    pools: "dict[Client, RunnerPool]" = {}

    def execute(request: "Request", arguments: "dict[str, Any]") -> None:
        client = request.client
        if client not in pools:
            pools[client] = RunnerPool(server.loop)
            client.on_close.append(lambda: pools.pop(client).close())
        ExecRequest(pools[client], request, arguments)

    server.operations["exec"] = execute
