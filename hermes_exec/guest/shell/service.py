"""The main operations of a guest: commands, sessions, and their streams.

This part follows the core, which sends the greeting first, so that the greeting travels meanwhile.
"""

from ..process import command
from ..streams.input_stream import InputStream
from ..streams.output_stream import OutputStream
from ..streams.pipe_handoff import HandoffOutputStream
from . import sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..core.server import Client, GuestServer


def install(server: "GuestServer") -> None:
    """Register the operations, so that requests are accepted."""
    server.new_input = InputStream
    server.new_output = _outlet
    command.install(server)
    sessions.install(server)


def _outlet(client: "Client", request: int, channel: int, bulk: bool) -> OutputStream:
    if bulk and client.shares_host:
        return HandoffOutputStream(client, request, channel)
    return OutputStream(client.server.loop, client.output_ready, request, channel)
