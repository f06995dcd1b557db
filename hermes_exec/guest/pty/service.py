"""The PTYs of a guest: interactive programs that continue without a viewer.

``pty`` starts a program under a name; ``pty.attach`` is one view of it, a request whose output is the program's
output and whose input is typed into it. Cancelling the request ends the view, and the program continues; a PTY ends
with its program, by ``pty.close``, or with the client that started it unless it is kept.
"""

import _signal
import errno
import os

from ..process.command import default_shell
from .program import PtyProgram

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..core.server import Client, GuestServer, Request


class PtyTable:
    """All PTYs of a guest by name, of every client."""

    def __init__(self, server: "GuestServer") -> None:
        self._server = server
        self._ptys: "dict[str, PtyProgram]" = {}
        self._owners: "set[Client]" = set()
        server.keeps_alive.append(lambda: any(pty.keep_s for pty in self._ptys.values()))

    def start(self, request: "Request", arguments: "dict[str, Any]") -> None:
        """Start a program; answer when it has started or failed to."""
        client = request.client
        if arguments["name"] in self._ptys:
            raise OSError(errno.EEXIST, "there is a PTY of that name")
        if client not in self._owners:
            self._owners.add(client)
            client.on_close.append(lambda: self._leave(client))
        if not arguments.get("argv"):
            own: "dict[bytes, bytes]" = arguments.get("env") or {}
            named = own.get(b"SHELL") or client.env.get(b"SHELL")
            arguments["argv"] = [login_shell(named), b"-l"]
        self._ptys[arguments["name"]] = PtyProgram(request, arguments, self._on_gone)

    def _on_gone(self, pty: PtyProgram) -> None:
        if self._ptys.get(pty.name) is pty:
            del self._ptys[pty.name]
            self._server.check_idle()

    def _leave(self, client: "Client") -> None:
        self._owners.discard(client)
        for pty in list(self._ptys.values()):
            if pty.owner is client and not pty.keep_s:
                pty.close()

    def offer(self, operation: str, call: "Callable[[PtyProgram, Request, dict[str, Any]], None]") -> None:
        """Register an operation on one PTY that is named in its arguments."""

        def by_name(request: "Request", arguments: "dict[str, Any]") -> None:
            pty = self._ptys.get(arguments["name"])
            if pty is None:
                names = ", ".join(sorted(self._ptys)) or "none"
                request.fail("closed", "no PTY of that name is here; there are: " + names)
            else:
                call(pty, request, arguments)

        self._server.operations["pty." + operation] = by_name

    def list(self, request: "Request", _: "dict[str, Any]") -> None:
        """List every PTY: name, terminal, program, start time, viewers, how long it is kept, and which output is."""
        ptys = [
            {
                "name": pty.name,
                "tty": pty.tty,
                "views": len(pty.views),
                "ended": pty.ended,
                "keep_s": pty.keep_s,
                "started": pty.started,
                "argv": pty.argv,
                "output": [pty.history.start, pty.history.total],
            }
            for pty in self._ptys.values()
        ]
        request.finish({"ptys": ptys})


def login_shell(named: "bytes | None") -> bytes:
    """Return the named shell, else this user's login shell, or a usual one if that is not a real shell."""
    import pwd  # a file of its own in some builds

    shell = named or os.environb.get(b"SHELL")
    if not shell:
        try:
            shell = os.fsencode(pwd.getpwuid(os.getuid()).pw_shell)
        except KeyError:
            shell = b""
    useless = os.path.basename(shell) in (b"", b"nologin", b"false")
    return default_shell() if useless or not os.access(shell, os.X_OK) else shell


def _attach(pty: PtyProgram, request: "Request", arguments: "dict[str, Any]") -> None:
    pty.attach(request, arguments.get("rows") or 0, arguments.get("cols") or 0, arguments.get("offset"))


def _resize(pty: PtyProgram, request: "Request", arguments: "dict[str, Any]") -> None:
    pty.resize(arguments["rows"], arguments["cols"])
    request.finish({})


def _send_signal(pty: PtyProgram, request: "Request", arguments: "dict[str, Any]") -> None:
    pty.signal(int(vars(_signal)["SIG" + arguments["signal"]]))
    request.finish({})


def _close(pty: PtyProgram, request: "Request", _: "dict[str, Any]") -> None:
    """Close a PTY; answer when it is gone."""
    if pty.ended:
        request.finish({})
    pty.on_end.append(lambda: request.finish({}))
    pty.close()


def install(server: "GuestServer") -> None:
    """Register ``pty`` and its ``attach``, ``resize``, ``signal``, ``close`` and ``list``."""
    ptys = PtyTable(server)
    server.operations["pty"] = ptys.start
    server.operations["pty.list"] = ptys.list
    ptys.offer("attach", _attach)
    ptys.offer("resize", _resize)
    ptys.offer("signal", _send_signal)
    ptys.offer("close", _close)
