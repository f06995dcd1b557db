"""The operations on sessions: ``session`` opens one, ``run`` runs a command in it, ``close`` ends it.

``states`` returns the last written state of a client's shells, for sessions that continue on another target.
"""

from ..core import libc
from ..process import runner
from .folders import MissingFolder, describe_error, read_state
from .inotify_watcher import InotifyWatcher
from .polling_watcher import PollingWatcher
from .session import ShellSession
from .shell_command import ShellCommand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..core.loop import Loop
    from ..core.server import Client, GuestServer, Request


def _watch(loop: "Loop") -> "InotifyWatcher | PollingWatcher":
    """Return an inotify watcher, or a polling one where fewer than two inotify instances are available."""
    try:
        return InotifyWatcher(loop)
    except OSError:
        return PollingWatcher(loop)


def _tell_states(sessions: "dict[tuple[Client, int], ShellSession]", request: "Request") -> None:
    mine = [(number, session) for (client, number), session in sessions.items() if client is request.client]
    request.finish({"states": [[number, read_state(session.folder)] for number, session in mine]})


def install(server: "GuestServer") -> None:
    """Register ``session``, ``run``, ``close`` and ``states``."""
    sessions: "dict[tuple[Client, int], ShellSession]" = {}
    refused: "dict[tuple[Client, int], tuple[str, str, int]]" = {}
    watches: "list[InotifyWatcher | PollingWatcher]" = []

    clients: "set[Client]" = set()

    def leave(client: "Client") -> None:
        """Close the sessions of a client that is gone."""
        clients.discard(client)
        for key in [key for key in refused if key[0] is client]:
            del refused[key]
        for key in [key for key in sessions if key[0] is client]:
            sessions.pop(key).close(lambda: None)

    def open_session(request: "Request", arguments: "dict[str, Any]") -> None:
        client = request.client
        if client not in clients:
            clients.add(client)
            client.on_close.append(lambda: leave(client))
        key = (client, request.number)
        try:
            if not watches:
                libc.become_subreaper()
                runner.raise_descriptor_limit()
                watches.append(_watch(server.loop))
            session = sessions[key] = ShellSession(watches[0], request, arguments)
        except OSError as error:
            kind = "cwd" if isinstance(error, MissingFolder) else "os"
            refused[key] = (kind, describe_error(error), error.errno or 0)
            request.fail(*refused[key])
            return

        def cancel() -> None:
            sessions.pop(key, None)
            session.close(lambda: None)

        request.cancel = cancel

    def run(request: "Request", arguments: "dict[str, Any]") -> None:
        key = (request.client, arguments["session"])
        session = sessions.get(key)
        if session is None:
            request.fail(*refused.get(key, ("closed", "the session is closed, or its lease was over", 0)))
        else:
            ShellCommand(session, request, arguments)

    def close_session(request: "Request", arguments: "dict[str, Any]") -> None:
        session = sessions.pop((request.client, arguments["session"]), None)
        if session is None:
            request.finish({})
        else:
            session.close(lambda: request.finish({}))

    server.operations["session"] = open_session
    server.operations["states"] = lambda request, _: _tell_states(sessions, request)
    server.operations["run"] = run
    server.operations["close"] = close_session
