"""What a guest does: commands, sessions, and their streams.

It comes right behind the part that says that a guest is there, so that its word is on its way meanwhile.
"""

from ..process import command
from ..streams.input_stream import Inlet
from ..streams.output_stream import Outlet
from ..streams.pipe_handoff import LendingOutlet
from . import sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..core.server import Client, Server


def install(server: "Server") -> None:
    """Take requests."""
    server.new_inlet = Inlet
    server.new_outlet = _outlet
    command.install(server)
    sessions.install(server)


def _outlet(client: "Client", request: int, channel: int, bulk: bool) -> Outlet:
    if bulk and client.near:
        return LendingOutlet(client, request, channel)
    return Outlet(client.server.loop, client.ready, request, channel)
