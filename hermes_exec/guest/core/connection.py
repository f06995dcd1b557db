"""One connection to a client: a parser for what comes, and what waits to be written.

Control frames go first, then data of all streams in turns, then each answer once the data that came
before it has been handed over.
"""

import os
import struct
from _collections import deque

from . import libc, wire
from .fdutil import enlarge
from .loop import now

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Deque

    from ..streams.output_stream import Outlet
    from .client import Client, Request
    from .loop import Loop
    from .server import Server

_SMALL = 16 << 10  # a large buffer for a small read costs more than the read
_ATTACH_S = 60.0
_BATCH = 64  # buffers in one writev; IOV_MAX is at least 1024 on Linux
_QUIET_S = 1.0  # a client that sends much over a slow network hears this often that it arrives
_REST_S = 0.001  # a megabyte lasts longer, and to be woken for each page that is taken costs more than to write it


class Connection:
    """Two descriptors to one client: a parser, and what waits to be written."""

    def __init__(self, server: "Server", fd_in: int, fd_out: int) -> None:
        self._server = server
        self._loop: "Loop" = server.loop
        self._in = fd_in
        self._out = fd_out
        self._client: "Client | None" = None
        self._parser = wire.Parser(self._frame, self._data, wire.MAX_REQUEST)
        self._sealer = wire.Sealer()
        self._control: "Deque[bytes]" = deque()
        self._ready: "Deque[Outlet]" = deque()
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
        self._large = enlarge(fd_out)
        self._loop.on_read(fd_in, self._readable)
        self._loop.call_later(_ATTACH_S, self._expect_attach)

    def control(self, frame: bytes) -> None:
        """Queue a small frame ahead of all data."""
        self._control.append(frame)
        self._schedule()

    def data(self, outlet: "Outlet") -> None:
        """Queue an outlet that has something to send."""
        outlet.queued = True
        self._ready.append(outlet)
        self._schedule()

    def answer(self, request: "Request") -> None:
        """Queue an answer; it leaves once the request's outlets have nothing left to send."""
        self._answers.append(request)
        self._schedule()

    def close(self) -> None:
        """Let go of the descriptors."""
        if not self._open:
            return
        self._open = False
        self._loop.ignore_read(self._in)
        self._loop.ignore_write(self._out)
        os.close(self._in)
        if self._out != self._in:
            os.close(self._out)
        self.on_closed()

    def _lost(self) -> None:
        self.close()
        client = self._client
        if client is None:
            self._server.check_idle()
        elif client.connection is self:
            client.detached()

    def _expect_attach(self) -> None:
        if self._client is None and self._open:
            self._lost()

    def _readable(self) -> None:
        try:
            chunk = os.read(self._in, self._read_size)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._lost()
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
        self.control(wire.frame(wire.PONG, 0, 0))

    def _refuse(self, error: Exception) -> None:
        reason = {"message": "malformed: {}".format(error), "damaged": type(error) is wire.DamageError}
        self._control.append(wire.frame(wire.FATAL, 0, 0, wire.pack(reason)))
        self.flush()
        self._lost()

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
            if request is not None and channel in request.outlets:
                request.outlets[channel].told(kind, payload)
        elif kind == wire.FORGET:
            for (forgotten,) in wire.OFFSET.iter_unpack(payload):
                client.forget(forgotten)
        elif kind == wire.EOF:
            request = client.requests.get(number)
            if request is not None and request.inlet is not None:
                request.inlet.receive_end(payload)
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
        if request is not None and request.inlet is not None:
            request.inlet.receive(position, data)

    def _attach(self, hello: "dict[str, Any]") -> None:
        client = self._client = self._server.client(hello)
        received = {number: offsets for number, *offsets in hello["received"]}
        welcome = {
            "version": wire.VERSION,
            "guest": self._server.identity,
            "highest": client.highest,
            "lapsed": client.lapsed,
            "inlets": [
                [request.number, request.inlet.received]
                for request in client.requests.values()
                if request.inlet is not None
            ],
            "parts": sorted(self._server.parts),
            # On the client's own machine it is so, and the look would cost the first word some milliseconds.
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
        """The next buffers to write: what was cut, control frames, data in turns, answers."""
        parts = self._partial
        self._partial = []
        while self._control and len(parts) < _BATCH:
            parts.append(self._sealer.seal(self._control.popleft()))
        room = wire.CHUNK
        while self._ready and room > 0 and len(parts) < _BATCH:
            outlet = self._ready.popleft()
            chunk = outlet.next_chunk()
            if chunk:
                parts += outlet.frame(chunk, self._sealer)
                room -= len(chunk)
            outlet.queued = outlet.pending
            if outlet.queued:
                self._ready.append(outlet)
        for _ in range(len(self._answers)):
            request = self._answers.popleft()
            if any(outlet.queued for outlet in request.outlets.values()):
                self._answers.append(request)
            elif request.answer is not None and request.number in request.client.requests:
                parts.append(self._sealer.seal(wire.frame(wire.RESULT, 0, request.number, request.answer)))
        return parts

    def flush(self) -> None:
        """Write until nothing is left or the channel is full."""
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
                self._lost()
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
