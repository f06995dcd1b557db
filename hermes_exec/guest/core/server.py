"""What the guest can do, for whom, and when it ends."""

import os

from . import wire
from .client import Client, Unsupported
from .loop import report
from .process_tree import TreeKill

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..streams.input_stream import Inlet
    from ..streams.output_stream import Outlet
    from .client import Request
    from .connection import Connection
    from .loop import Loop


class Server:
    """The operations, the clients and the parts that were sent later."""

    def __init__(self, loop: "Loop", identity: "dict[str, Any]", folder: str) -> None:
        self.loop = loop
        self.identity = identity
        self.folder = folder
        self.operations: "dict[str, Callable[[Request, dict[str, Any]], None]]" = {"stays": self._tell_stays}
        self.parts: "set[str]" = set()
        self.load_part: "Callable[[bytes], Any]"
        self.new_inlet: "Callable[[Loop, Callable[[int], None]], Inlet]"
        self.new_outlet: "Callable[[Client, int, int, bool], Outlet]"
        self.clients: "dict[bytes, Client]" = {}
        self.keeps_alive: "list[Callable[[], bool]]" = []
        self.on_idle: "Callable[[], None]" = loop.stop
        self._spool_folder = ""
        self._farewells: "list[Connection]" = []
        TreeKill.on_quiet.append(self.check_idle)

    def client(self, hello: "dict[str, Any]") -> Client:
        """The client of that name, new or known; one whose lease was over begins anew."""
        name: bytes = hello["client"]
        client = self.clients.get(name)
        if client is None:
            client = self.clients[name] = Client(self, name)
            client.lapsed = bool(hello["known"])
            client.cwd = hello.get("cwd") or b""
        client.lease_s = float(hello["lease_s"])
        client.env = hello["env"]
        client.near = bool(hello.get("near"))
        return client

    def run(self, request: "Request", operation: str, arguments: "dict[str, Any]") -> None:
        """Start a request; whatever goes wrong in it is the request's own failure."""
        call = self.operations.get(operation)
        if call is None:
            request.fail("unsupported", "no operation " + operation)
            return
        try:
            call(request, arguments)
        except Unsupported as reason:
            request.fail("unsupported", str(reason))
        except OSError as error:
            request.fail("os", error.strerror or str(error), error.errno or 0)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            request.fail("malformed", "{}: {}: {}".format(operation, type(error).__name__, error))

    def load(self, payload: bytes) -> None:
        """Take a part of the guest that is needed from now on: its name, a NUL, its modules."""
        name, _, blob = payload.partition(b"\0")
        if name.decode() in self.parts:  # another client has sent it since we were last told
            return
        try:
            self.load_part(blob).install(self)
        except Exception as error:  # noqa: BLE001  its operations are not there then, and that is what a request is told
            report(error)
        else:
            self.parts.add(name.decode())

    def spool_folder(self) -> str:
        """A private folder on a real disk."""
        if not self._spool_folder:
            base = "/var/tmp" if os.path.isdir("/var/tmp") else "/tmp"
            path = "{}/hx-{}".format(base, self.identity["id"])
            try:
                os.mkdir(path, 0o700)
                self._spool_folder = path
            except OSError:
                self._spool_folder = self.folder
        return self._spool_folder

    def closed(self, client: Client) -> None:
        """A client is gone; it is told so when what it had running has ended."""
        self.clients.pop(client.name, None)
        if client.connection is not None:
            self._farewells.append(client.connection)
            client.connection = None
        self.check_idle()

    def _stays(self) -> bool:
        """Whether something goes on here when no client is left."""
        return any(keeps() for keeps in self.keeps_alive)

    def _tell_stays(self, request: "Request", _: "dict[str, Any]") -> None:
        request.finish({"stays": self._stays()})

    def check_idle(self) -> None:
        """Say farewell to those who left, and end when nobody needs this guest."""
        if TreeKill.active:
            return
        ends = not self.clients and not self._stays()
        for connection in self._farewells:
            connection.control(wire.frame(wire.BYE, 0, 0, wire.pack({"ends": ends})))
            connection.flush()
            connection.close()
        self._farewells = []
        if ends:
            self.on_idle()
