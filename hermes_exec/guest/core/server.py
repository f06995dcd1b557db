"""The clients of a guest, their connections and requests, and the server that runs them.

A client is one user of this guest, known by a random id, connected or not. Its request ids ascend; a request is run
once, and its answer is kept until the client acknowledges it. Everything that a new connection resumes from is in the
client, so a cut at any byte neither loses nor repeats anything.

A connection sends control frames first, then data of all streams in turns, then each answer after the data before it.
"""

import os
import struct
from _collections import deque  # collections itself is slow to import

from . import libc, wire
from .fdutil import enlarge_pipe
from .loop import now, report_exception
from .process_tree import TreeKill

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Deque

    from ..streams.input_stream import InputStream
    from ..streams.output_stream import OutputStream
    from .loop import Loop, Timer

_SMALL = 16 << 10  # bytes of a read; allocating a large buffer costs more than a small read
_ATTACH_S = 60.0
_BATCH = 64  # buffers in one writev; IOV_MAX is at least 1024 on Linux
_QUIET_S = 1.0  # interval of PONGs to a client that sends a large input, as proof that it arrives
_REST_S = 0.001  # pause on a full 1 MiB pipe: waking up for each page that is read costs more than writing it


class UnsupportedRequest(Exception):
    """The target does not support a request; raised before anything has run."""


class Request:
    """One request of a client. It ends by ``finish`` or ``fail``, exactly once."""

    def __init__(self, client: "Client", number: int) -> None:
        self.client = client
        self.number = number
        self.outputs: "dict[int, OutputStream]" = {}
        self.input: "InputStream | None" = None
        self.answer: "bytes | None" = None
        self.cancel: "Callable[[], None]" = lambda: None

    def open_output(self, channel: int, *, bulk: bool = False) -> "OutputStream":
        """Open an output stream to the client; the pipe of a ``bulk`` one can be handed off to it."""
        client = self.client
        outlet = client.server.new_output(client, self.number, channel, bulk)
        self.outputs[channel] = outlet
        if client.connection is None:
            outlet.spool_to(client.server.spool_folder)
        return outlet

    def expect_input(self) -> "InputStream":
        """Open an input stream from the client, whose descriptor is not known yet."""
        self.input = self.client.server.new_input(self.client.server.loop, self.send_credit)
        return self.input

    def open_input(self, fd: int) -> "InputStream":
        """Open an input stream from the client to ``fd``, which the stream then owns."""
        inlet = self.expect_input()
        inlet.write_to(fd)
        return inlet

    def send_credit(self, offset: int) -> None:
        """Send CREDIT: the input was written up to ``offset``."""
        self.client.send_control(wire.CREDIT, wire.STDIN, self.number, wire.OFFSET.pack(offset))

    def finish(self, answer: "dict[str, Any]") -> None:
        """Send the answer, which is kept until the client acknowledges it."""
        if self.answer is None:
            self.answer = wire.pack(answer)
            self.cancel = lambda: None
            self.client.send_answer(self)

    def fail(self, kind: str, message: str, code: int = 0) -> None:
        """Answer that nothing ran, and why. ``kind`` is one of the kinds in docs/protocol.md."""
        self.finish({"error": kind, "message": message, "errno": code})

    def close(self) -> None:
        """Close the streams."""
        for outlet in self.outputs.values():
            outlet.close()
        if self.input is not None:
            self.input.close()


class Client:
    """One user of the guest: its requests, and its connection while it has one."""

    def __init__(self, server: "GuestServer", name: bytes) -> None:
        self.server = server
        self.name = name
        self.lease_s = 900.0
        self.env: "dict[bytes, bytes]" = {}
        self.cwd = b""  # the part for commands resolves it
        self.note = ""
        self.shares_host = False
        self.connection: "ClientConnection | None" = None
        self.requests: "dict[int, Request]" = {}
        self.highest = 0
        self.lapsed = False  # its lease has expired, and it may not know that yet
        self.on_close: "list[Callable[[], None]]" = []
        self._lease: "Timer | None" = None

    def attach(self, connection: "ClientConnection", received: "dict[int, list[int]]") -> None:
        """Resume over a new connection; ``received`` has the client's offsets per pending request."""
        if self.connection is not None:
            self.connection.close()
        if self._lease is not None:
            self._lease.cancel()
        self.connection = connection
        for request in list(self.requests.values()):
            offsets = received.get(request.number)
            if offsets is None:  # the client has its answer, and the acknowledgement was lost
                self.forget(request.number)
                continue
            for channel, outlet in request.outputs.items():
                outlet.resume(offsets[channel])
            if request.input is not None:
                request.input.send_credit()
            if request.answer is not None:
                self.send_answer(request)

    def detach(self) -> None:
        """Keep running without a connection, spool output, and close when the lease expires."""
        self.connection = None
        self._lease = self.server.loop.call_later(self.lease_s, self.close)
        for request in self.requests.values():
            for outlet in request.outputs.values():
                outlet.spool_to(self.server.spool_folder)

    def send_control(self, kind: int, channel: int, request: int, payload: bytes) -> None:
        """Send a small frame ahead of all data; dropped while disconnected."""
        if self.connection is not None:
            self.connection.queue_control(wire.frame(kind, channel, request, payload))

    def output_ready(self, outlet: "OutputStream") -> None:
        """Queue an output stream that has something to send."""
        if self.connection is not None and not outlet.queued:
            self.connection.queue_data(outlet)

    def send_answer(self, request: Request) -> None:
        """Send an answer, after the data before it."""
        for outlet in request.outputs.values():
            if outlet.spooled:
                outlet.on_emptied = lambda: self.send_answer(request)
                return
        if self.connection is not None:
            self.connection.queue_answer(request)

    def request(self, number: int, payload: bytes) -> None:
        """Run a request, unless its id was received before."""
        if number <= self.highest:
            return
        self.highest = number
        self.lapsed = False
        operation, arguments = wire.unpack(payload)
        request = self.requests[number] = Request(self, number)
        self.server.run(request, operation, arguments)

    def forget(self, number: int) -> None:
        """Drop a request whose answer the client has acknowledged."""
        request = self.requests.get(number)
        if request is not None and request.answer is not None:
            del self.requests[number]
            request.close()

    def close(self) -> None:
        """End everything of this client except jobs."""
        if self._lease is not None:
            self._lease.cancel()
        for call in self.on_close:
            call()
        for request in list(self.requests.values()):
            request.cancel()
            request.close()
        self.requests.clear()
        self.server.remove_client(self)


class ClientConnection:
    """Two descriptors to one client: a parser, and queues of what is to be written."""

    def __init__(self, server: "GuestServer", fd_in: int, fd_out: int) -> None:
        self._server = server
        self._loop: "Loop" = server.loop
        self._in = fd_in
        self._out = fd_out
        self._client: "Client | None" = None
        self._parser = wire.Parser(self._frame, self._data, wire.MAX_REQUEST)
        self._sealer = wire.Sealer()
        self._control: "Deque[bytes]" = deque()
        self._ready: "Deque[OutputStream]" = deque()
        self._answers: "Deque[Request]" = deque()
        self._partial: "list[bytes | memoryview]" = []
        self._flush_soon = False
        self._blocked = False
        self._read_size = _SMALL
        self._heard = 0
        self._said = now()
        self._open = True
        self.on_closed: "Callable[[], None]" = lambda: None
        os.set_blocking(fd_in, False)
        os.set_blocking(fd_out, False)
        self._large = enlarge_pipe(fd_out)
        self._loop.on_read(fd_in, self._readable)
        self._loop.call_later(_ATTACH_S, self._expect_attach)

    def queue_control(self, frame: bytes) -> None:
        """Queue a small frame ahead of all data."""
        self._control.append(frame)
        self._schedule()

    def queue_data(self, outlet: "OutputStream") -> None:
        """Queue an output stream that has something to send."""
        outlet.queued = True
        self._ready.append(outlet)
        self._schedule()

    def queue_answer(self, request: "Request") -> None:
        """Queue an answer; it is sent once the request's output streams have nothing left to send."""
        self._answers.append(request)
        self._schedule()

    def close(self) -> None:
        """Close the descriptors."""
        if not self._open:
            return
        self._open = False
        self._loop.ignore_read(self._in)
        self._loop.ignore_write(self._out)
        os.close(self._in)
        if self._out != self._in:
            os.close(self._out)
        self.on_closed()

    def _on_lost(self) -> None:
        self.close()
        client = self._client
        if client is None:
            self._server.check_idle()
        elif client.connection is self:
            client.detach()

    def _expect_attach(self) -> None:
        if self._client is None and self._open:
            self._on_lost()

    def _readable(self) -> None:
        try:
            chunk = os.read(self._in, self._read_size)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._on_lost()
            return
        self._read_size = wire.CHUNK if len(chunk) == self._read_size else _SMALL
        self._heard += len(chunk)
        if self._heard > _SMALL and self._client is not None and now() > self._said + _QUIET_S:
            self._pong()
        try:
            self._parser.feed(chunk)
        except (ValueError, KeyError, TypeError, IndexError, struct.error) as error:
            self._refuse(error)

    def _pong(self) -> None:
        self._heard = 0
        self._said = now()
        self.queue_control(wire.frame(wire.PONG, 0, 0))

    def _refuse(self, error: Exception) -> None:
        reason = {"message": "malformed: {}".format(error), "damaged": type(error) is wire.DamageError}
        self._control.append(wire.frame(wire.FATAL, 0, 0, wire.pack(reason)))
        self.flush()
        self._on_lost()

    def _frame(self, kind: int, channel: int, number: int, payload: bytes) -> None:
        client = self._client
        if client is None:
            if kind != wire.ATTACH:
                raise ValueError("a frame before ATTACH")
            self._attach(wire.unpack(payload))
        elif kind == wire.REQUEST:
            client.request(number, payload)
        elif kind in (wire.CREDIT, wire.RETURN):
            request = client.requests.get(number)
            if request is not None and channel in request.outputs:
                request.outputs[channel].on_reader_frame(kind, payload)
        elif kind == wire.FORGET:
            for (forgotten,) in wire.OFFSET.iter_unpack(payload):
                client.forget(forgotten)
        elif kind == wire.EOF:
            request = client.requests.get(number)
            if request is not None and request.input is not None:
                request.input.receive_end(payload)
        elif kind == wire.CANCEL:
            request = client.requests.get(number)
            if request is not None:
                request.cancel()
        elif kind == wire.LOAD:
            self._server.load(payload)
        elif kind == wire.PING:
            self._pong()
        elif kind == wire.BYE:
            client.close()
        else:
            raise ValueError("frame kind {}".format(kind))

    def _data(self, _: int, number: int, position: int, data: bytes) -> None:
        request = self._client.requests.get(number) if self._client is not None else None
        if request is not None and request.input is not None:
            request.input.receive(position, data)

    def _attach(self, hello: "dict[str, Any]") -> None:
        client = self._client = self._server.client(hello)
        received = {number: offsets for number, *offsets in hello["received"]}
        welcome = {
            "version": wire.VERSION,
            "guest": self._server.identity,
            "highest": client.highest,
            "lapsed": client.lapsed,
            "inlets": [
                [request.number, request.input.received]
                for request in client.requests.values()
                if request.input is not None
            ],
            "parts": sorted(self._server.parts),
            # It always works on the client's own machine, and loading ctypes would delay WELCOME by some milliseconds.
            "adopts": hello["near"] or libc.become_subreaper(),
        }
        self._sealer.checksum = self._parser.sealer.checksum = bool(hello.get("checksum"))
        self._control.append(wire.frame(wire.WELCOME, 0, 0, wire.pack(welcome)))
        client.attach(self, received)
        self._schedule()

    def _schedule(self) -> None:
        if not self._flush_soon and not self._blocked:
            self._flush_soon = True
            self._loop.call_soon(self.flush)

    def _gather(self) -> "list[bytes | memoryview]":
        """The next buffers to write: the rest of the last write, control frames, data in turns, answers."""
        parts = self._partial
        self._partial = []
        while self._control and len(parts) < _BATCH:
            parts.append(self._sealer.seal(self._control.popleft()))
        room = wire.CHUNK
        while self._ready and room > 0 and len(parts) < _BATCH:
            outlet = self._ready.popleft()
            chunk = outlet.next_chunk()
            if chunk:
                parts += outlet.data_frame(chunk, self._sealer)
                room -= len(chunk)
            outlet.queued = outlet.pending
            if outlet.queued:
                self._ready.append(outlet)
        for _ in range(len(self._answers)):
            request = self._answers.popleft()
            if any(outlet.queued for outlet in request.outputs.values()):
                self._answers.append(request)
            elif request.answer is not None and request.number in request.client.requests:
                parts.append(self._sealer.seal(wire.frame(wire.RESULT, 0, request.number, request.answer)))
        return parts

    def flush(self) -> None:
        """Write until the queues are empty or the channel is full."""
        self._flush_soon = False
        while self._open and (self._control or self._ready or self._answers or self._partial):
            parts = self._gather()
            if not parts:
                continue
            try:
                done = os.writev(self._out, parts)
            except BlockingIOError:
                done = 0
            except OSError:
                self._on_lost()
                return
            if self._keep_rest(parts, done):
                self._blocked = True
                self._wait_for_room()
                return
        if self._blocked and self._open:
            self._blocked = False
            self._loop.ignore_write(self._out)

    def _wait_for_room(self) -> None:
        if self._large:
            self._loop.ignore_write(self._out)
            self._loop.call_later(_REST_S, self._write_on)
        else:
            self._write_on()

    def _write_on(self) -> None:
        if self._open:
            self._loop.on_write(self._out, self.flush)

    def _keep_rest(self, parts: "list[bytes | memoryview]", done: int) -> bool:
        for index, part in enumerate(parts):
            if done < len(part):
                self._partial = [memoryview(part)[done:], *parts[index + 1 :]]
                return True
            done -= len(part)
        return False


class GuestServer:
    """The operations, the clients and the loaded parts."""

    def __init__(self, loop: "Loop", identity: "dict[str, Any]", folder: str) -> None:
        self.loop = loop
        self.identity = identity
        self.folder = folder
        self.operations: "dict[str, Callable[[Request, dict[str, Any]], None]]" = {"stays": self._answer_stays}
        self.parts: "set[str]" = set()
        self.load_part: "Callable[[bytes], Any]"
        self.new_input: "Callable[[Loop, Callable[[int], None]], InputStream]"
        self.new_output: "Callable[[Client, int, int, bool], OutputStream]"
        self.clients: "dict[bytes, Client]" = {}
        self.keeps_alive: "list[Callable[[], bool]]" = []
        self.on_idle: "Callable[[], None]" = loop.stop
        self._spool_folder = ""
        self._farewells: "list[ClientConnection]" = []
        TreeKill.on_quiet.append(self.check_idle)

    def client(self, hello: "dict[str, Any]") -> Client:
        """Return the client of an ATTACH, known or new; a client whose lease has expired starts afresh."""
        name: bytes = hello["client"]
        client = self.clients.get(name)
        if client is None:
            client = self.clients[name] = Client(self, name)
            client.lapsed = bool(hello["known"])
            client.cwd = hello.get("cwd") or b""
        client.lease_s = float(hello["lease_s"])
        client.env = hello["env"]
        client.shares_host = bool(hello.get("near"))
        return client

    def run(self, request: "Request", operation: str, arguments: "dict[str, Any]") -> None:
        """Start a request; an exception becomes its answer."""
        call = self.operations.get(operation)
        if call is None:
            request.fail("unsupported", "no operation " + operation)
            return
        try:
            call(request, arguments)
        except UnsupportedRequest as reason:
            request.fail("unsupported", str(reason))
        except OSError as error:
            request.fail("os", error.strerror or str(error), error.errno or 0)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            request.fail("malformed", "{}: {}: {}".format(operation, type(error).__name__, error))

    def load(self, payload: bytes) -> None:
        """Load a part of the guest; the payload is its name, a NUL and its modules."""
        name, _, blob = payload.partition(b"\0")
        if name.decode() in self.parts:  # another client has sent it meanwhile
            return
        try:
            self.load_part(blob).install(self)
        except Exception as error:  # noqa: BLE001  its operations are then missing, and requests are answered so
            report_exception(error)
        else:
            self.parts.add(name.decode())

    def spool_folder(self) -> str:
        """Return a private folder on disk."""
        if not self._spool_folder:
            base = "/var/tmp" if os.path.isdir("/var/tmp") else "/tmp"
            path = "{}/hx-{}".format(base, self.identity["id"])
            try:
                os.mkdir(path, 0o700)
                self._spool_folder = path
            except OSError:
                self._spool_folder = self.folder
        return self._spool_folder

    def remove_client(self, client: Client) -> None:
        """Remove a client; its connection gets BYE when everything of it has ended."""
        self.clients.pop(client.name, None)
        if client.connection is not None:
            self._farewells.append(client.connection)
            client.connection = None
        self.check_idle()

    def _stays(self) -> bool:
        """Whether something, such as a job, keeps the guest running without clients."""
        return any(keeps() for keeps in self.keeps_alive)

    def _answer_stays(self, request: "Request", _: "dict[str, Any]") -> None:
        request.finish({"stays": self._stays()})

    def check_idle(self) -> None:
        """Send BYE to clients that have closed, and end when no client or job needs this guest."""
        if TreeKill.active:
            return
        ends = not self.clients and not self._stays()
        for connection in self._farewells:
            connection.queue_control(wire.frame(wire.BYE, 0, 0, wire.pack({"ends": ends})))
            connection.flush()
            connection.close()
        self._farewells = []
        if ends:
            self.on_idle()
