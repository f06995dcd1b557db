"""A session: a live shell, the queue of its commands, and what happens when the shell ends or is broken.

The state of the shell is written down whenever it has been idle for a moment, before a command that
may replace or kill it, and by its own EXIT trap. A shell that is gone is followed by a new one with the
last state, and the answer says so.
"""

import os
from _collections import deque

from . import native, runner, shelltext, tree, wire
from .command import drain_all
from .loop import now
from .shell import Shell, Watches, complete_state
from .shellcommand import Background, ShellCommand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Deque

    from .client import Client, Request
    from .server import Server

_IDLE_S = 0.02
"""After this long without a command the state is written down."""
_LARGE = 100 << 10
"""Kernels refuse to start a program with a variable over 128 KiB, so the shell gets larger ones by file."""
_RISKY = (b"exec", b"kill")
_GRACE_S = 0.5

KEPT, RESTORED, ROLLED_BACK = range(3)
_BROKEN = "the command broke the shell's own machinery, so its exit status is not known"
_REPLACED = "an earlier command had broken the shell's own machinery, so the shell was replaced"


class Session:
    """One live shell and its successors."""

    def __init__(self, watches: Watches, request: "Request", arguments: "dict[str, Any]") -> None:
        client = request.client
        self._server = client.server
        self._loop = client.server.loop
        self.folder = "{}/{}".format(client.server.folder, os.urandom(4).hex())
        self._program: bytes = arguments.get("shell") or default_shell()
        self._login = bool(arguments.get("login"))
        self._dialect = shelltext.Dialect(self.folder, os.path.basename(self._program).startswith(b"bash"))
        self._env = self._prepare(client, arguments)
        self._watches = watches
        self._background = Background(request)
        self._queue: "Deque[ShellCommand]" = deque()
        self._current: "ShellCommand | None" = None
        self._internal: "Callable[[int, bool], None] | None" = None
        self._shell: "Shell | None" = None
        self._ready = False
        self._settling = False
        self._closed: "Callable[[], None] | None" = None
        self._adopted: "set[tree.Process]" = set()
        self._state = KEPT
        self._note = ""
        self._dirty = False
        self._ticking = False
        self._stuck = 0
        self._pause = _IDLE_S
        self._last = now()
        self._start_shell()

    def _prepare(self, client: "Client", arguments: "dict[str, Any]") -> "dict[bytes, bytes]":
        """Make the session's folder with its first state; gives the environment for the shell itself."""
        folder = self.folder
        cwd: bytes = arguments.get("cwd") or client.cwd
        os.stat(cwd + b"/.")
        os.makedirs(folder + "/s", 0o700)
        env = dict(os.environb)
        env.update(client.env)
        env.update(arguments.get("env") or {})
        large = [name for name, value in env.items() if len(value) > _LARGE]
        lines = [b"export %b=%b\n" % (name, shelltext.quote(env.pop(name))) for name in large]
        lines.append(b"\\cd -- %b\n" % shelltext.quote(cwd))
        lines += [line + b"\n" for line in arguments.get("setup") or []]
        write_file(folder + "/state", b"".join(lines))
        write_file(folder + "/dump", shelltext.dump_text(folder, self._dialect.bash))
        write_file(folder + "/begun", b"")
        return env

    def _start_shell(self) -> None:
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        self._pipes = [out, err]
        for fd in self._pipes:
            os.set_blocking(fd, False)
        self._ready = False
        self._fresh = b""
        self._numbers = self._watches.add(self.folder, self._opened)
        try:
            self._shell = Shell(
                self._loop,
                self.folder,
                self._dialect,
                [self._program, b"login" if self._login else b""],
                self._env,
                [out_end, err_end],
                self._exited,
            )
        finally:
            os.close(out_end)
            os.close(err_end)

    def submit(self, command: ShellCommand) -> None:
        """Run a command after those that were submitted before."""
        self._queue.append(command)
        self._next()

    def _next(self) -> None:
        if self._current or self._internal or self._settling or self._closed or not self._queue:
            return
        shell = self._shell
        if shell is None:
            self._start_shell()
        elif self._ready:
            if self._dirty and any(word in self._queue[0].text for word in _RISKY):
                self._checkpoint()
            else:
                self._current = self._queue.popleft()
                self._run(shell, self._current)

    def _run(self, shell: Shell, command: ShellCommand) -> None:
        channels = (wire.STDOUT,) if command.arguments.get("merge") else (wire.STDOUT, wire.STDERR)
        command.outlets = [command.request.outlet(channel) for channel in channels]
        for outlet, fd in zip(command.outlets, self._pipes):
            outlet.on_disk_full = command.disk_full
            outlet.read_from(fd)
        if command.arguments.get("stdin") and command.stdin_keeper < 0:
            command.open_stdin(self.folder)
        command.begin()
        shell.run(command.text, command.wrap(self._dialect), self._fresh)
        self._fresh = b""
        self._tick_soon()

    def _opened(self, name: bytes) -> None:
        """The shell has opened a file in its status folder."""
        command = self._current
        if name == b"stdin":
            if command is not None:
                command.stdin_opened()
        elif name == b"cwd":
            if command is not None:
                command.bad_folder = True
        elif not self._ready:
            self._ready = True
            self._next()
        else:
            self._status(int(name))

    def _status(self, code: int) -> None:
        begun = self._watches.begun(self._numbers)
        command = self._current
        if self._internal is not None:
            internal = self._internal
            self._internal = None
            internal(code, begun)
        elif command is None:
            self._replace()
        elif begun:
            self._done(command, code)
        elif command.bad_folder:
            command.answer.update(error="cwd", errno=2, message="no such folder")
            self._done(command, code)
        elif code and self._shell is not None:  # a syntax error, or machinery that is shadowed: an empty one tells
            self._internal = lambda _, works: self._done(command, code) if works else self._replace()
            self._shell.run(b"")
        else:
            self._replace()

    def _replace(self) -> None:
        """What the loop needs is shadowed, so nothing of the current command ran: run it in a new shell."""
        self._note = _REPLACED
        if self._current is not None and not self._current.stopping:
            self._current.unread()
            self._queue.appendleft(self._current)
            self._current = None
        if self._shell is not None:
            self._shell.kill()

    def _done(self, command: ShellCommand, code: int) -> None:
        if not command.stopping:
            command.answer["code"] = code
            self._deliver(command)

    def _deliver(self, command: ShellCommand) -> None:
        drain_all(command.outlets, lambda: self._finish(command))

    def _finish(self, command: ShellCommand) -> None:
        for outlet in command.outlets:
            outlet.release()
        command.close_stdin(self.folder)
        if self._state != KEPT:
            command.answer["shell"] = self._state
            self._state = KEPT
        if self._note:
            command.answer.setdefault("note", self._note)
            self._note = ""
        command.finish()
        self._current = None
        self._dirty = True
        self._last = now()
        self._settling = True
        self._loop.call_soon(self._settle)  # after the answer has left

    def _settle(self) -> None:
        """Keep what the last command left in the background apart from the next one."""
        self._settling = False
        shell = self._shell
        if shell is None:
            self._retire_pipes()
        elif shell.has_children():
            shell.kept = tree.living(shell.descendants())
            if not self._fresh and shell.writes_to(self._pipes[0]):
                self._retire_pipes()
                self._pipes, self._fresh = shell.new_pipes()
        self._next()

    def _retire_pipes(self) -> None:
        for fd, channel in zip(self._pipes, (wire.STDOUT, wire.STDERR)):
            self._background.adopt(fd, channel)
        self._pipes = []

    def _checkpoint(self) -> None:
        if self._shell is not None:
            self._dirty = False
            self._internal = self._checkpointed
            self._shell.run("{{ . {}/dump; }} >/dev/null 2>&1".format(self.folder).encode())

    def _checkpointed(self, code: int, begun: bool) -> None:
        if begun:
            complete_state(self.folder)
            self._next()
        else:
            self._replace()

    def _tick_soon(self) -> None:
        if not self._ticking:
            self._ticking = True
            self._pause = _IDLE_S
            self._loop.call_later(_IDLE_S, self._tick)

    def _tick(self) -> None:
        """Write the state down when idle; notice a shell that waits though it owes a status."""
        self._ticking = False
        shell = self._shell
        if shell is None or not self._ready or self._closed:
            return
        command = self._current
        if command is None:
            if not self._dirty or self._internal:
                return
            if now() - self._last >= _IDLE_S:
                self._checkpoint()
                return
        elif not command.stopping:
            self._stuck = self._stuck + 1 if shell.waits else 0
            if self._stuck == 2:
                command.answer["note"] = _BROKEN
                shell.kill_command(_GRACE_S, lambda survivors: None)
        self._ticking = True
        self._pause = _IDLE_S if command is None or self._stuck else min(2 * self._pause, 1.0)
        self._loop.call_later(self._pause, self._tick)

    def stop(self, command: ShellCommand) -> None:
        """End a command: a waiting one never runs, the running one is killed with all that it started."""
        if command is self._current:
            if self._shell is not None:
                self._shell.kill_command(command.grace_s, command.survivors)
        elif command in self._queue:
            self._queue.remove(command)
            command.answer["note"] = "it was still waiting for its turn, so nothing ran"
            command.finish()

    def _exited(self, status: int) -> None:
        """The shell is gone: by itself, by a command, or by us."""
        self._shell = None
        self._ready = False
        self._internal = None
        self._stuck = 0
        self._watches.remove(self._numbers)
        orphans = [pid for pid in tree.children(os.getpid()) if pid not in self._loop.own_children()]
        self._adopted = {process for process in self._adopted if tree.stat(process[0])[2] == process[1]}
        self._adopted |= tree.living(orphans)
        self._state = RESTORED if complete_state(self.folder) else ROLLED_BACK
        self._dirty = False
        if self._closed is not None:
            self._end()
        elif self._current is not None:
            self._current.ended(status)
            self._deliver(self._current)
        else:
            self._settle()

    def close(self, done: "Callable[[], None]") -> None:
        """End the shell and everything that its commands left; ``done`` is called when it is gone."""
        self._closed = done
        for command in list(self._queue):
            command.cancel()
        if self._shell is None:
            self._end()
        else:
            self._shell.kept = set()
            self._shell.kill_command(_GRACE_S, lambda survivors: None)

    def _end(self) -> None:
        def gone(survivors: "list[int]") -> None:
            if self._closed is not None:
                self._closed()

        if self._current is not None:
            self._current.answer.setdefault("cancelled", True)
            self._deliver(self._current)
        pids = [process[0] for process in self._adopted if tree.stat(process[0])[2] == process[1]]
        tree.TreeKill(self._loop, lambda: pids + tree.descendants(pids), _GRACE_S, gone)
        remove_folder(self.folder)


def default_shell() -> bytes:
    """The best shell of this place."""
    for path in (b"/bin/bash", b"/usr/bin/bash", b"/usr/local/bin/bash"):
        if os.access(path, os.X_OK):
            return path
    return b"/bin/sh"


def write_file(path: str, data: bytes) -> None:
    """A new private file."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
    finally:
        os.close(fd)


def remove_folder(path: str) -> None:
    """Remove a folder of ours and all in it, following no link."""
    for folder, folders, files in os.walk(path, topdown=False):
        for name in files:
            os.unlink(os.path.join(folder, name))
        for name in folders:
            os.rmdir(os.path.join(folder, name))
    try:
        os.rmdir(path)
    except OSError:
        pass  # never made, or a file came meanwhile: the keeper removes the whole runtime folder


def install(server: "Server") -> None:
    """Offer ``session``, ``run`` and ``close``."""
    sessions: "dict[tuple[Client, int], Session]" = {}
    watches: "list[Watches]" = []

    def open_session(request: "Request", arguments: "dict[str, Any]") -> None:
        client = request.client
        if not watches:
            native.become_subreaper()
            runner.raise_descriptor_limit()
            watches.append(Watches(server.loop))
        key = (client, request.number)
        session = sessions[key] = Session(watches[0], request, arguments)
        request.cancel = lambda: session.close(lambda: None)

        def close() -> None:
            open_one = sessions.pop(key, None)
            if open_one is not None:
                open_one.close(lambda: None)

        client.on_close.append(close)

    def run(request: "Request", arguments: "dict[str, Any]") -> None:
        session = sessions.get((request.client, arguments["session"]))
        if session is None:
            request.fail("closed", "the session is closed")
        else:
            ShellCommand(session, request, arguments)

    def close_session(request: "Request", arguments: "dict[str, Any]") -> None:
        session = sessions.pop((request.client, arguments["session"]), None)
        if session is None:
            request.finish({})
        else:
            session.close(lambda: request.finish({}))

    server.operations["session"] = open_session
    server.operations["run"] = run
    server.operations["close"] = close_session
