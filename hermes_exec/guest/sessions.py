"""The operations on sessions: ``session`` opens one, ``run`` gives it a command, ``close`` ends it."""

from . import native, runner
from .folders import describe
from .session import Session
from .shell import Watches
from .shellcommand import ShellCommand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .client import Client, Request
    from .server import Server


def install(server: "Server") -> None:
    """Offer ``session``, ``run`` and ``close``."""
    sessions: "dict[tuple[Client, int], Session]" = {}
    refused: "dict[tuple[Client, int], tuple[str, str, int]]" = {}
    watches: "list[Watches]" = []

    def forget(key: "tuple[Client, int]") -> None:
        refused.pop(key, None)

    def open_session(request: "Request", arguments: "dict[str, Any]") -> None:
        client = request.client
        if not watches:
            native.become_subreaper()
            runner.raise_descriptor_limit()
            watches.append(Watches(server.loop))
        key = (client, request.number)
        try:
            session = sessions[key] = Session(watches[0], request, arguments)
        except OSError as error:
            kind = "cwd" if error.filename else "os"
            refused[key] = (kind, describe(error), error.errno or 0)
            client.on_close.append(lambda: forget(key))
            request.fail(*refused[key])
            return
        request.cancel = lambda: session.close(lambda: None)

        def close() -> None:
            open_one = sessions.pop(key, None)
            if open_one is not None:
                open_one.close(lambda: None)

        client.on_close.append(close)

    def run(request: "Request", arguments: "dict[str, Any]") -> None:
        key = (request.client, arguments["session"])
        session = sessions.get(key)
        if session is None:
            request.fail(*refused.get(key, ("closed", "the session is closed", 0)))
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
