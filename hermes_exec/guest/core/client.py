"""Clients and their requests.

A client is one user of this guest, known by a random id, connected or not. Its requests carry ids; an
id that was seen is never run again, its answer is kept until the client says that it has it. All that a
new connection needs to go on is in the client, so a cut at any byte loses and repeats nothing.
"""

from . import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..streams.input_stream import Inlet
    from ..streams.output_stream import Outlet
    from .connection import Connection
    from .loop import Timer
    from .server import Server


class Unsupported(Exception):
    """This place cannot do what a request asks for; raised before anything has run."""


class Request:
    """One thing that a client asked for. It ends by ``finish`` or ``fail``, exactly once."""

    def __init__(self, client: "Client", number: int) -> None:
        self.client = client
        self.number = number
        self.outlets: "dict[int, Outlet]" = {}
        self.inlet: "Inlet | None" = None
        self.answer: "bytes | None" = None
        self.cancel: "Callable[[], None]" = lambda: None

    def outlet(self, channel: int, *, bulk: bool = False) -> "Outlet":
        """A new stream towards the client; a pipe that may carry much (``bulk``) can be lent to it."""
        client = self.client
        outlet = client.server.new_outlet(client, self.number, channel, bulk)
        self.outlets[channel] = outlet
        if client.connection is None:
            outlet.spool_to(client.server.spool_folder)
        return outlet

    def expect_input(self) -> "Inlet":
        """A new stream from the client, whose descriptor is not there yet."""
        self.inlet = self.client.server.new_inlet(self.client.server.loop, self.credit)
        return self.inlet

    def open_inlet(self, fd: int) -> "Inlet":
        """A new stream from the client to ``fd``, which then belongs to the stream."""
        inlet = self.expect_input()
        inlet.write_to(fd)
        return inlet

    def credit(self, offset: int) -> None:
        """Tell the client how far its stream was used up."""
        self.client.control(wire.CREDIT, wire.STDIN, self.number, wire.OFFSET.pack(offset))

    def finish(self, answer: "dict[str, Any]") -> None:
        """Tell the client the outcome; kept until the client forgets the request."""
        if self.answer is None:
            self.answer = wire.pack(answer)
            self.cancel = lambda: None
            self.client.answered(self)

    def fail(self, kind: str, message: str, code: int = 0) -> None:
        """Tell the client that nothing ran, and why. ``kind`` is one of docs/protocol.md's closed set."""
        self.finish({"error": kind, "message": message, "errno": code})

    def close(self) -> None:
        """Drop the streams."""
        for outlet in self.outlets.values():
            outlet.close()
        if self.inlet is not None:
            self.inlet.close()


class Client:
    """One user of the guest: its requests, and its connection while there is one."""

    def __init__(self, server: "Server", name: bytes) -> None:
        self.server = server
        self.name = name
        self.lease_s = 900.0
        self.env: "dict[bytes, bytes]" = {}
        self.cwd = b""  # the part for commands makes it absolute
        self.note = ""
        self.near = False
        self.connection: "Connection | None" = None
        self.requests: "dict[int, Request]" = {}
        self.highest = 0
        self.lapsed = False  # it was here before, and may not know yet that its lease was over
        self.on_close: "list[Callable[[], None]]" = []
        self._lease: "Timer | None" = None

    def attach(self, connection: "Connection", received: "dict[int, list[int]]") -> None:
        """Go on over a new connection; ``received`` has the reader's offsets per live request."""
        if self.connection is not None:
            self.connection.close()
        if self._lease is not None:
            self._lease.cancel()
        self.connection = connection
        for request in list(self.requests.values()):
            offsets = received.get(request.number)
            if offsets is None:  # the client has its answer, and the word that it has was lost
                self.forget(request.number)
                continue
            for channel, outlet in request.outlets.items():
                outlet.resume(offsets[channel])
            if request.inlet is not None:
                request.inlet.tell()
            if request.answer is not None:
                self.answered(request)

    def detached(self) -> None:
        """The connection is gone: go on, keep what comes, and close when the lease ends."""
        self.connection = None
        self._lease = self.server.loop.call_later(self.lease_s, self.close)
        for request in self.requests.values():
            for outlet in request.outlets.values():
                outlet.spool_to(self.server.spool_folder)

    def control(self, kind: int, channel: int, request: int, payload: bytes) -> None:
        """Send a small frame ahead of all data; dropped while nobody is connected."""
        if self.connection is not None:
            self.connection.control(wire.frame(kind, channel, request, payload))

    def event(self, request: int, event: "dict[str, Any]") -> None:
        """Tell something that nobody asked for; lost while nobody is connected."""
        self.control(wire.EVENT, 0, request, wire.pack(event))

    def ready(self, outlet: "Outlet") -> None:
        """An outlet has something to send."""
        if self.connection is not None and not outlet.queued:
            self.connection.data(outlet)

    def answered(self, request: Request) -> None:
        """Send an answer, after the data that came before it."""
        for outlet in request.outlets.values():
            if outlet.spooled:
                outlet.on_emptied = lambda: self.answered(request)
                return
        if self.connection is not None:
            self.connection.answer(request)

    def request(self, number: int, payload: bytes) -> None:
        """Run a request unless its id was seen before."""
        if number <= self.highest:
            return
        self.highest = number
        self.lapsed = False
        operation, arguments = wire.unpack(payload)
        request = self.requests[number] = Request(self, number)
        self.server.run(request, operation, arguments)

    def forget(self, number: int) -> None:
        """The client has the answer."""
        request = self.requests.get(number)
        if request is not None and request.answer is not None:
            del self.requests[number]
            request.close()

    def close(self) -> None:
        """End everything of this client but its jobs."""
        if self._lease is not None:
            self._lease.cancel()
        for call in self.on_close:
            call()
        for request in list(self.requests.values()):
            request.cancel()
            request.close()
        self.requests.clear()
        self.server.closed(self)
