"""Interactive programs: a pseudo-terminal, the program in it, and those who look at it.

``pty`` starts a program under a name; ``pty.attach`` is one look at it, a request whose output is what the
program shows and whose input is what is typed. A look ends by cancelling it, and the program goes on; a
PTY ends with its program, by ``pty.close``, or with the client that started it unless it is kept.
"""

import errno
import os
import struct

import _signal

from . import runner, wire
from .loop import now
from .process import Pool
from .session import default_shell
from .streams import Inlet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from .client import Client, Request
    from .loop import Timer
    from .server import Server

HISTORY = 256 << 10
"""Bytes of output that a new viewer gets at least, where the program has shown as many."""
_BEHIND = 2 << 20
"""Bytes that a viewer may be behind before the program has to wait: twice the step in which an Inlet tells."""
_TURN = 64 << 10
_GRACE_S = 1.0
_AGAIN_S = 0.01
_SIZE = struct.Struct("4H")
_IUTF8 = 0o40000
_QUESTIONS = (
    rb"\x1b\[[?>=]?[\d;]*(?:[cnt]|\$p)|\x1b\[>\d*q|\x1b\[\?u|\x1b\][\d;]+;\?(?:\x07|\x1b\\)|\x1bP[+$]q[^\x1b]*\x1b\\|\x05"
)
"""What asks a terminal for an answer; a second viewer's answer to an old question would look typed."""


class View:
    """One look at a PTY. A pipe holds what is shown until the request's outlet takes or spools it."""

    def __init__(self, pty: "Pty", request: "Request") -> None:
        self._pty = pty
        self._request = request
        self._answer: "dict[str, Any]" = {}
        self._shown = 0
        self._taken = 0
        self._pipe, end = os.pipe()
        os.set_blocking(self._pipe, False)
        os.set_blocking(end, False)
        self._tee = Inlet(request.client.server.loop, end, self._passed)
        self._outlet = request.outlet(wire.STDOUT)
        self._outlet.read_from(self._pipe, self._finish)
        request.cancel = self.detach

    @property
    def full(self) -> bool:
        """True when the program has to wait for this viewer."""
        return self._shown - self._taken >= _BEHIND

    def show(self, data: bytes) -> None:
        """What the program has written."""
        self._shown += len(data)
        self._tee.feed(data)

    def _passed(self, offset: int) -> None:
        self._taken = offset
        self._pty.read_on()

    def end(self, answer: "dict[str, Any]") -> None:
        """The answer follows what was shown."""
        self._answer = answer
        self._tee.end()

    def detach(self) -> None:
        """The viewer goes, the program does not."""
        if not self._answer:
            self._answer = {"detached": True}
            self._pty.left(self)
            self._tee.close()
            self._finish()

    def hang_up(self) -> None:
        """Nothing more can be typed."""
        if self._request.inlet is not None:
            self._request.inlet.close()

    def _finish(self) -> None:
        self._outlet.release()
        os.close(self._pipe)
        self.hang_up()
        self._request.finish(self._answer)


class Pty:
    """A pseudo-terminal and the program that has it as its controlling terminal."""

    def __init__(self, request: "Request", arguments: "dict[str, Any]", gone: "Callable[[Pty], None]") -> None:
        client = request.client
        self.name: str = arguments["name"]
        self.owner = client
        self.keep_s = float(arguments.get("keep_s") or 0)
        self.on_ended: "list[Callable[[], None]]" = []
        self._request = request
        self._gone = gone
        self._loop = client.server.loop
        self._views: "list[View]" = []
        self._history = bytearray()
        self._cut = False
        self._answer: "dict[str, Any]" = {}
        self._over = False  # the program has ended
        self._ended = False  # and all that it wrote was read
        self._reading = False
        self._lease: "Timer | None" = None
        self._started = now()
        # The guest holds the program's side too, so that a program may close and open it again.
        self._master, self._slave = os.openpty()
        try:
            self._start(arguments)
        except BaseException:
            self._close_both()
            raise
        self.read_on()

    def _start(self, arguments: "dict[str, Any]") -> None:
        self._prepare(arguments.get("rows") or 24, arguments.get("cols") or 80)
        client = self.owner
        env = {b"TERM": b"xterm-256color"}
        env.update(client.env)
        env.update(arguments.get("env") or {})
        tty = os.ttyname(self._slave)
        spec = {
            "argv": arguments.get("argv") or [login_shell(env), b"-l"],
            "env": env,
            "cwd": arguments.get("cwd") or client.cwd,
            "tty": tty,
        }
        self._pool = Pool(self._loop)
        self._runner = self._pool.take()
        self._runner.start(
            spec, [self._slave] * 3, self._program_ended, lambda pid: self._request.finish({"pid": pid, "tty": tty})
        )

    def _prepare(self, rows: int, cols: int) -> None:
        import termios  # noqa: PLC0415  a file of its own

        os.set_blocking(self._master, False)
        self.resize(rows, cols)
        modes = termios.tcgetattr(self._slave)
        modes[0] |= _IUTF8  # a backspace takes a whole character, as in every terminal of today
        termios.tcsetattr(self._slave, termios.TCSANOW, modes)

    def resize(self, rows: int, cols: int) -> None:
        """Set the size; the kernel tells the programs in the foreground when it is another one."""
        import fcntl  # noqa: PLC0415  loaded already
        import termios  # noqa: PLC0415  loaded already

        if self._master >= 0:
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, _SIZE.pack(rows, cols, 0, 0))

    def signal(self, number: int) -> None:
        """Signal the foreground; raises OSError when there is none, or it is another user's."""
        group = os.tcgetpgrp(self._master) if self._master >= 0 else 0
        if group <= 0:
            raise OSError(errno.ESRCH, "nothing runs in the foreground")
        os.killpg(group, number)

    def attach(self, request: "Request", rows: int, cols: int) -> None:
        """A new viewer: first it gets what was shown of late, then the program is asked to draw anew."""
        view = View(self, request)
        if self._history:
            view.show(self._replay())
        if self._lease is not None:
            self._lease.cancel()
        if self._ended:
            view.end(self._answer)
            self._gone(self)
            return
        self._views.append(view)
        if self._master >= 0:
            request.open_inlet(os.dup(self._master))
        if rows and cols:
            self.resize(rows, cols)
        if self._history:
            try:
                self.signal(_signal.SIGWINCH)
            except OSError:
                pass  # nobody is there to draw

    def _replay(self) -> bytes:
        import re  # noqa: PLC0415  slow to import, and few attach a second time

        recent = bytes(self._history[-HISTORY:])
        if self._cut or len(recent) < len(self._history):
            recent = recent.partition(b"\n")[2] or recent  # no half of a line or of an escape sequence
        return re.sub(_QUESTIONS, b"", recent)

    def left(self, view: View) -> None:
        """A viewer has gone."""
        self._views.remove(view)
        if not self._views and self.keep_s:
            self._lease = self._loop.call_later(self.keep_s, self.close)

    def read_on(self) -> None:
        """Read from the program unless a viewer is too far behind."""
        wanted = self._master >= 0 and not any(view.full for view in self._views)
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                self._loop.on_read(self._master, self._readable)
            else:
                self._loop.ignore_read(self._master)

    def _readable(self) -> None:
        parts = []
        size = 0
        ended = False
        while size < _TURN and not ended:
            try:
                part = os.read(self._master, _TURN)
            except BlockingIOError:
                ended = self._slave < 0  # another process, not of ours, still holds the program's side
                break
            except OSError:  # EIO: nobody does
                ended = True
            else:
                parts.append(part)
                size += len(part)
        if parts:
            self._show(b"".join(parts))
        if ended:
            self._end()

    def _show(self, data: bytes) -> None:
        self._history += data
        if len(self._history) > 2 * HISTORY:
            self._cut = True
            del self._history[:-HISTORY]
        for view in self._views:
            view.show(data)
        self.read_on()

    def _program_ended(self, kind: int, value: int) -> None:
        self._over = True
        answer = self._answer
        if kind == runner.NO_PROGRAM:
            code = 127 if value in (errno.ENOENT, errno.ENOTDIR) else 126
            answer.update(error="program", errno=value, message=os.strerror(value), code=code)
        elif kind == runner.NO_FOLDER:
            answer.update(error="cwd", errno=value, message=os.strerror(value))
        elif os.WIFSIGNALED(value):
            answer["signal"] = os.WTERMSIG(value)
        else:
            answer["code"] = os.WEXITSTATUS(value)
        answer["duration"] = now() - self._started
        self._request.finish(answer)  # only where it was never started
        self._runner.kill(_GRACE_S, self._swept)

    def _swept(self, survivors: "list[int]") -> None:
        """The program and what it left in its terminal are gone: read the last of it."""
        if survivors:
            self._answer["note"] = "these processes could not be ended: {}".format(survivors)
        self._pool.close()
        if self._master < 0:
            self._end()
        else:
            os.close(self._slave)
            self._slave = -1
            self._readable()

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._close_both()
        for view in self._views:
            view.end(self._answer)
        if self._views or not self.keep_s or "cancelled" in self._answer:
            self._gone(self)
        for call in self.on_ended:
            call()
        self._views = []

    def _close_both(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.ignore_read(self._master)
        for fd in (self._master, self._slave):
            if fd >= 0:
                os.close(fd)
        self._master = self._slave = -1

    def close(self) -> None:
        """Hang up, which tells shells and editors to save what they have, and end everything in it."""
        if self._ended:
            self._gone(self)
        elif "cancelled" not in self._answer:
            self._answer["cancelled"] = True
            for view in self._views:
                view.hang_up()
            self._close_both()
            self._kill()

    def _kill(self) -> None:
        if not self._over:
            self._runner.kill(_GRACE_S, self._killed)

    def _killed(self, survivors: "list[int]") -> None:
        if survivors and not self._over:
            self._over = True
            self._swept(survivors)
        elif not self._over:  # the runner had not started it yet, or is about to tell its end
            self._loop.call_later(_AGAIN_S, self._kill)


def login_shell(env: "dict[bytes, bytes]") -> bytes:
    """The shell of this user, or a usual one where that is none to work in."""
    import pwd  # noqa: PLC0415  a file of its own in some builds

    shell = env.get(b"SHELL") or os.environb.get(b"SHELL")
    if not shell:
        try:
            shell = os.fsencode(pwd.getpwuid(os.getuid()).pw_shell)
        except KeyError:
            shell = b""
    useless = os.path.basename(shell) in (b"", b"nologin", b"false")
    return default_shell() if useless or not os.access(shell, os.X_OK) else shell


def install(server: "Server") -> None:
    """Offer ``pty`` and its ``attach``, ``resize``, ``signal``, ``close`` and ``list``."""
    ptys: "dict[str, Pty]" = {}
    owners: "set[Client]" = set()
    server.keeps_alive.append(lambda: any(pty.keep_s for pty in ptys.values()))

    def gone(pty: Pty) -> None:
        if ptys.get(pty.name) is pty:
            del ptys[pty.name]
            server.check_idle()

    def leave(client: "Client") -> None:
        owners.discard(client)
        for pty in list(ptys.values()):
            if pty.owner is client and not pty.keep_s:
                pty.close()

    def start(request: "Request", arguments: "dict[str, Any]") -> None:
        client = request.client
        if arguments["name"] in ptys:
            raise OSError(errno.EEXIST, "there is a PTY of that name")
        if client not in owners:
            owners.add(client)
            client.on_close.append(lambda: leave(client))
        ptys[arguments["name"]] = Pty(request, arguments, gone)

    def offer(operation: str, call: "Callable[[Pty, Request, dict[str, Any]], None]") -> None:
        def named(request: "Request", arguments: "dict[str, Any]") -> None:
            pty = ptys.get(arguments["name"])
            if pty is None:
                names = ", ".join(sorted(ptys)) or "none"
                request.fail("closed", "no PTY of that name is here; there are: " + names)
            else:
                call(pty, request, arguments)

        server.operations["pty." + operation] = named

    def attach(pty: Pty, request: "Request", arguments: "dict[str, Any]") -> None:
        pty.attach(request, arguments.get("rows") or 0, arguments.get("cols") or 0)

    def resize(pty: Pty, request: "Request", arguments: "dict[str, Any]") -> None:
        pty.resize(arguments["rows"], arguments["cols"])
        request.finish({})

    def signal(pty: Pty, request: "Request", arguments: "dict[str, Any]") -> None:
        pty.signal(int(getattr(_signal, "SIG" + arguments["signal"])))
        request.finish({})

    def close(pty: Pty, request: "Request", arguments: "dict[str, Any]") -> None:
        pty.on_ended.append(lambda: request.finish({}))
        pty.close()

    server.operations["pty"] = start
    for operation, call in (("attach", attach), ("resize", resize), ("signal", signal), ("close", close)):
        offer(operation, call)
