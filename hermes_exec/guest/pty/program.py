"""A pseudo-terminal, and the program that has it as its controlling terminal."""

import _signal
import errno
import fcntl
import os
import struct
import time

from ..core.loop import now
from ..process import runner
from ..process.command import add_note, resolve_folder
from ..process.process import RunnerPool
from .view import OutputHistory, PtyView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..core.loop import Timer
    from ..core.server import Request

_TURN = 64 << 10
"""Bytes read per turn; a PTY returns at most 4 KiB per read."""
_GRACE_S = 1.0
_AGAIN_S = 0.01
_SIZE = struct.Struct("4H")
_IUTF8 = 0o40000


class PtyProgram:
    """A pseudo-terminal, its program and its viewers. ``gone`` is called when no viewer can attach from then on."""

    def __init__(self, request: "Request", arguments: "dict[str, Any]", gone: "Callable[[PtyProgram], None]") -> None:
        self.name: str = arguments["name"]
        self.owner = request.client
        self.keep_s = float(arguments.get("keep_s") or 0)
        self.views: "list[PtyView]" = []
        self.on_end: "list[Callable[[], None]]" = []
        self.ended = False  # the program has ended, and all its output was read
        self._request = request
        self._gone = gone
        self._loop = request.client.server.loop
        self.history = OutputHistory()
        self._answer: "dict[str, Any]" = {}
        self._over = False  # the program has ended, or cannot be ended
        self._closed = False
        self._seen = False
        self._reading = False
        self._lease: "Timer | None" = None
        self._began = now()
        self.started = time.time()
        self.argv: "list[bytes]" = arguments["argv"]
        # The guest holds the program's side too, so that the program may close it and open it again.
        self._master, self._slave = os.openpty()
        self._reserve: "list[int]" = []  # held for the first viewer: its program must not run unseen
        try:
            ((reading, writing),) = runner.open_pipes(1)
            self._reserve += [reading, writing]
            self._reserve.append(os.dup(reading))
            self.tty = os.ttyname(self._slave)
            self._start(arguments)
        except BaseException:
            self._hang_up()
            self._release_reserve()
            raise
        self._read_on()
        self._on_unwatched()

    def _start(self, arguments: "dict[str, Any]") -> None:
        import termios  # a file of its own

        self._set_size = termios.TIOCSWINSZ
        os.set_blocking(self._master, False)
        self.resize(arguments.get("rows") or 24, arguments.get("cols") or 80)
        modes = termios.tcgetattr(self._slave)
        modes[0] |= _IUTF8  # a backspace deletes a whole character, as in all current terminals
        termios.tcsetattr(self._slave, termios.TCSANOW, modes)
        env = {b"TERM": b"xterm-256color"}
        env.update(self.owner.env)
        env.update(arguments.get("env") or {})
        spec = {
            "argv": arguments["argv"],
            "env": env,
            "cwd": resolve_folder(self.owner, arguments.get("cwd")),
            "tty": self.tty,
        }
        self._pool = RunnerPool(self._loop)
        self._runner = self._pool.take()

        def on_start(pid: int) -> None:
            self._request.finish({"pid": pid, "tty": self.tty})

        self._runner.start(spec, [self._slave] * 3, self._program_ended, on_start)

    def resize(self, rows: int, cols: int) -> None:
        """Set the size; if it changes, the kernel signals the foreground process group."""
        if self._master >= 0:
            fcntl.ioctl(self._master, self._set_size, _SIZE.pack(rows, cols, 0, 0))

    def signal(self, number: int) -> None:
        """Signal the foreground process group; raise OSError if there is none or another user owns it."""
        group = os.tcgetpgrp(self._master) if self._master >= 0 else 0
        if group <= 0:
            raise OSError(errno.ESRCH, "nothing runs in the foreground")
        os.killpg(group, number)

    def attach(self, request: "Request", rows: int, cols: int, offset: "int | None" = None) -> None:
        """Add a viewer: it gets the recent output, then the program is asked to draw again.

        With an offset it gets all output from that byte on as it came, and nothing is drawn again.
        """
        kept = None if offset is None else self.history.since(offset)
        if offset is not None and kept is None:
            request.fail("closed", "the output is not kept from that byte on")
            return
        self._seen = True
        self._release_reserve()
        view = PtyView(request, self._master, self._read_on, self._on_leave, self._type_end)
        if self._lease is not None:
            self._lease.cancel()
        replay = self.history.replay() if kept is None else kept
        if replay:
            view.show(replay)
        if self.ended:
            view.end(self._answer)
            self._gone(self)
            return
        self.views.append(view)
        if rows and cols:
            self.resize(rows, cols)
        if replay and offset is None:
            try:
                self.signal(_signal.SIGWINCH)
            except OSError:
                pass  # no foreground process group is there to draw

    def _on_leave(self, view: PtyView) -> None:
        if view in self.views:
            self.views.remove(view)
            self._on_unwatched()

    def _type_end(self, wait_s: float = 0.02) -> None:
        """Type a viewer's end of input (Ctrl-D) after all its bytes, and again until the program ends.

        One typed too early is lost: a shell with line editing reads a zero byte instead. As with a file, every program
        that
        reads on gets the end of input. Only a shell with line editing needs the last line to be finished.
        """
        import select
        import termios

        ended = [view for view in self.views if view.keys.closed]
        if not ended or self._slave < 0:
            return
        if not select.select([self._slave], [], [], 0)[0]:
            edits = not termios.tcgetattr(self._slave)[3] & termios.ICANON
            finish = edits and any(view.keys.in_line for view in ended)
            for view in ended:
                view.keys.in_line = view.keys.in_line and not edits
            try:
                os.write(self._master, b"\r\4" if finish else b"\4")
            except BlockingIOError:
                pass  # the terminal is full of unread input
        self._loop.call_later(wait_s, lambda: self._type_end(min(2 * wait_s, 1.0)))

    def _on_unwatched(self) -> None:
        if self.keep_s and not self.views:
            self._lease = self._loop.call_later(self.keep_s, self.close)

    def _read_on(self) -> None:
        """Read from the program unless a viewer is too far behind."""
        wanted = self._master >= 0 and not any(view.full for view in self.views)
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                self._loop.on_read(self._master, self._readable)
            else:
                self._loop.ignore_read(self._master)

    def _readable(self) -> None:
        parts: "list[bytes]" = []
        size = 0
        ended = False
        while size < _TURN and not ended:
            try:
                part = os.read(self._master, _TURN)
            except BlockingIOError:
                ended = self._slave < 0  # an outside process still holds the other side
                break
            except OSError:  # EIO: no process holds it
                ended = True
            else:
                parts.append(part)
                size += len(part)
        if parts:
            data = b"".join(parts)
            self.history.add(data)
            for view in self.views:
                view.show(data)
        if ended:
            self._end()
        else:
            self._read_on()

    def _program_ended(self, kind: int, value: int) -> None:
        if self.ended:  # it could not be ended earlier
            return
        self._over = True
        answer = self._answer
        answer["duration"] = now() - self._began
        if kind == runner.NO_PROGRAM:
            code = 127 if value in (errno.ENOENT, errno.ENOTDIR) else 126
            answer.update(error="program", errno=value, message=os.strerror(value), code=code)
        elif kind == runner.NO_FOLDER:
            answer.update(error="cwd", errno=value, message=os.strerror(value))
        elif kind == runner.NO_ROOM:
            answer.update(error="os", errno=value, message=os.strerror(value))
        elif os.WIFSIGNALED(value):
            answer["signal"] = os.WTERMSIG(value)
        else:
            answer["code"] = os.WEXITSTATUS(value)
        add_note(self.owner, answer)
        self._request.finish(answer)  # used only if it was never started
        self._runner.kill(_GRACE_S, self._on_sweep)

    def _on_sweep(self, survivors: "list[int]") -> None:
        """Read the rest of the output after the program and its processes are gone."""
        if survivors:
            self._answer["note"] = "these processes could not be ended: {}".format(survivors)
        self._pool.close()
        if self._master < 0:
            self._end()
        else:
            os.close(self._slave)
            self._slave = -1
            self._read_on()

    def _end(self) -> None:
        self.ended = True
        self._hang_up()
        views = self.views
        self.views = []
        for view in views:
            view.end(self._answer)
        if views or self._closed or (self._seen and not self.keep_s):  # otherwise a viewer may still attach
            self._gone(self)
        for call in self.on_end:
            call()

    def _hang_up(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.ignore_read(self._master)
        for fd in (self._master, self._slave):
            if fd >= 0:
                os.close(fd)
        self._master = self._slave = -1

    def _release_reserve(self) -> None:
        while self._reserve:
            os.close(self._reserve.pop())

    def close(self) -> None:
        """Hang up, which makes shells and editors save their data, and end all processes on the PTY."""
        self._release_reserve()
        if self.ended:
            self._gone(self)
        elif not self._closed:
            self._closed = True
            for view in self.views:
                view.hang_up()
            swept = self._slave < 0  # then only the rest of the output was awaited, and it will not come
            self._hang_up()
            if swept:
                self._end()
            else:
                self._kill()

    def _kill(self) -> None:
        if not self._over:
            self._answer["cancelled"] = True
            self._runner.kill(_GRACE_S, self._on_kill)

    def _on_kill(self, survivors: "list[int]") -> None:
        if not self._over and survivors:
            self._over = True
            self._on_sweep(survivors)
        elif not self._over:  # the runner has not started it yet, or is about to report its end
            self._loop.call_later(_AGAIN_S, self._kill)
