"""The main operations of a guest: commands, sessions, and their streams.

This part follows the core, which sends the greeting first, so that the greeting travels meanwhile.
"""

from ..core import libc
from ..process import command, runner
from ..streams.input_stream import InputStream
from ..streams.output_stream import OutputStream
from ..streams.pipe_handoff import HandoffOutputStream
from .folders import MissingFolder, read_state
from .inotify_watcher import InotifyWatcher
from .polling_watcher import PollingWatcher
from .session import ShellSession

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..core.loop import Loop
    from ..core.server import Client, GuestServer, Request


def install(server: "GuestServer") -> None:
    """Register the operations, so that requests are accepted."""
    server.new_input = InputStream
    server.new_output = _outlet
    command.install(server)
    sessions = _SessionTable(server.loop)
    server.operations["session"] = sessions.open
    server.operations["states"] = sessions.tell_states
    server.operations["run"] = sessions.run
    server.operations["close"] = sessions.close


def _outlet(client: "Client", request: int, channel: int, bulk: bool) -> OutputStream:
    if bulk and client.shares_host:
        return HandoffOutputStream(client, request, channel)
    return OutputStream(client.server.loop, client.output_ready, request, channel)


def _watch(loop: "Loop") -> "InotifyWatcher | PollingWatcher":
    """Return an inotify watcher, or a polling one where fewer than two inotify instances are available."""
    try:
        return InotifyWatcher(loop)
    except OSError:
        return PollingWatcher(loop)


class _SessionTable:
    """The sessions of all clients, by client and request number, and the operations on them."""

    def __init__(self, loop: "Loop") -> None:
        self._loop = loop
        self._sessions: "dict[tuple[Client, int], ShellSession]" = {}
        self._refused: "dict[tuple[Client, int], tuple[str, str, int]]" = {}
        self._clients: "set[Client]" = set()
        self._watcher: "InotifyWatcher | PollingWatcher | None" = None

    def open(self, request: "Request", arguments: "dict[str, Any]") -> None:
        """Open a session with a live shell; the request stays open as long as the session."""
        client = request.client
        if client not in self._clients:
            self._clients.add(client)
            client.on_close.append(lambda: self._leave(client))
        key = (client, request.number)
        try:
            if self._watcher is None:
                libc.become_subreaper()
                runner.raise_descriptor_limit()
                self._watcher = _watch(self._loop)
            session = self._sessions[key] = ShellSession(self._watcher, request, arguments)
        except OSError as error:
            kind = "cwd" if isinstance(error, MissingFolder) else "os"
            self._refused[key] = (kind, command.describe_error(error), error.errno or 0)
            request.fail(*self._refused[key])
            return

        def cancel() -> None:
            self._sessions.pop(key, None)
            session.close(lambda: None)

        request.cancel = cancel

    def _leave(self, client: "Client") -> None:
        """Close the sessions of a client that is gone."""
        self._clients.discard(client)
        for key in [key for key in self._refused if key[0] is client]:
            del self._refused[key]
        for key in [key for key in self._sessions if key[0] is client]:
            self._sessions.pop(key).close(lambda: None)

    def run(self, request: "Request", arguments: "dict[str, Any]") -> None:
        """Run a command in a session."""
        key = (request.client, arguments["session"])
        session = self._sessions.get(key)
        if session is None:
            request.fail(*self._refused.get(key, ("closed", "the session is closed, or its lease was over", 0)))
        else:
            session.submit(request, arguments)

    def close(self, request: "Request", arguments: "dict[str, Any]") -> None:
        """End a session."""
        session = self._sessions.pop((request.client, arguments["session"]), None)
        if session is None:
            request.finish({})
        else:
            session.close(lambda: request.finish({}))

    def tell_states(self, request: "Request", _: "dict[str, Any]") -> None:
        """Answer with the last written state of each of the client's shells, to continue on another target."""
        mine = [(number, session) for (client, number), session in self._sessions.items() if client is request.client]
        request.finish({"states": [[number, read_state(session.folder)] for number, session in mine]})
