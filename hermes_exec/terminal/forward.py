"""Port forwarding: a listener on one side, and for each connection that it accepts a connection on the other.

Bytes travel as streams of the link, so a slow reader on either side makes the writer on the other side wait,
the end of one direction leaves the other open, and a broken link neither loses nor repeats bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import struct
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from hermes_exec._arguments import check_calls
from hermes_exec._async import cancel_and_wait
from hermes_exec.errors import HermesError, UsageError
from hermes_exec.guest.core import wire
from hermes_exec.guest.forward.service import bind_path, inode_of, remove_path
from hermes_exec.terminal.encoding import validate_callback, validate_flag

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

    from hermes_exec.transport.call import GuestCall
    from hermes_exec.transport.link import Link
    from hermes_exec.transport.protocol import RunningCommand


_log = logging.getLogger("hermes_exec.terminal.forward")
_HERE = "127.0.0.1"
_CONNECT_S = 30.0

_RESET = struct.pack("ii", 1, 0)
READ = 256 << 10
"""Bytes that are read ahead from a local socket."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address to listen on or to connect to: a TCP port, or a unix socket when ``path`` is given."""

    host: str = _HERE
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str | int) -> Endpoint:
        """Read ``8080``, ``host:8080``, ``[::1]:8080``, ``/path/of/socket`` or ``unix:path``.

        The host defaults to 127.0.0.1, so that no other machine can connect unless that is asked for.
        """
        word = str(text)
        if "/" in word or word.startswith("unix:"):
            return cls(path=word.removeprefix("unix:"))
        host, _, port = word.rpartition(":")
        if not port.isascii() or not port.isdigit() or int(port) > 0xFFFF:
            raise UsageError(f"{word!r} is not a port", remedy="8080, host:8080, [::1]:8080 or /path/of/socket")
        return cls(host=host.removeprefix("[").removesuffix("]") or _HERE, port=int(port))

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a request."""
        return {"host": self.host, "port": self.port, "path": os.fsencode(self.path)}


def _parse_end(end: Any, name: str) -> Endpoint:
    """Return the address that the parameter ``name`` has."""
    if isinstance(end, Endpoint):
        return end
    try:
        return Endpoint.parse(end)
    except UsageError as error:
        raise UsageError(f"{name}: {error.what}", remedy=error.remedy) from None


@check_calls
class Forward:
    """Forwards connections from ``listen`` on one side to ``to`` on the other. Use it with ``async with``.

    It lasts until it or its terminal is closed, or the target is lost.
    """

    def __init__(
        self,
        link: Link,
        listen: Endpoint | str | int,
        to: Endpoint | str | int,
        *,
        reverse: bool = False,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        """Listen here and connect in the target; with ``reverse`` listen in the target and connect here.

        ``on_failure`` is called with a message for each connection that failed; by default it is logged.
        """
        self.listen: Endpoint = _parse_end(listen, "listen")
        self.to: Endpoint = _parse_end(to, "to")
        self.reverse: bool = validate_flag(reverse, "reverse")
        validate_callback(on_failure, "on_failure")
        self.address: Endpoint = self.listen
        """The address that it listens on; after ``start`` with the port that was chosen for port 0."""
        self._link = link
        self._on_failure = on_failure or _log.warning
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._listening: GuestCall | None = None
        self._inode = 0
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._tasks)

    def __repr__(self) -> str:
        """Return both addresses."""
        direction = "<-" if self.reverse else "->"
        return f"<Forward {self.address} {direction} {self.to}>"

    async def start(self) -> None:
        """Start to listen.

        Raises:
            UsageError: it cannot listen on that address.
        """
        self._link.load_part("forward")
        if self.reverse:
            await self._listen_there()
        else:
            await self._listen_here()

    async def _listen_here(self) -> None:
        at = self.listen
        host = _HERE if at.host == "localhost" else at.host
        try:
            if at.path:
                sock = socket.socket(fileno=bind_path(os.fsencode(at.path)).detach())
                self._inode = inode_of(at.path)
                self._server = await asyncio.start_unix_server(self._on_connection, sock=sock, limit=READ)
            else:
                self._server = await asyncio.start_server(self._on_connection, host, at.port, limit=READ)
                self.address = Endpoint(at.host, self._server.sockets[0].getsockname()[1])
        except OSError as error:
            raise _refusal(at, "here", error.errno, _reason(error)) from error

    async def _listen_there(self) -> None:
        arrivals = ListenerSink()
        arrivals.on_arrival = lambda number: self._begin(self._connect_here(number))
        call = self._listening = self._link.call("forward.listen", self.listen.fields, arrivals)
        try:
            await asyncio.wait((call.answer, arrivals.port), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            call.cancel()
            raise
        if call.answer.done():
            answer = call.answer.result()
            raise _refusal(self.listen, "in the target", answer.get("errno"), answer.get("message"))
        if not self.listen.path:
            self.address = Endpoint(self.listen.host, arrivals.port.result())
        call.answer.add_done_callback(self._on_listener_end)

    def _on_listener_end(self, answer: asyncio.Future[dict[str, Any]]) -> None:
        error = answer.exception()
        if error is not None:
            self._lose(error)

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:  # closed while the connection was being accepted
            ForwardedConnection(reader, writer).reset()
        else:
            self._begin(self._carry("forward.connect", self.to.fields, ForwardedConnection(reader, writer)))

    def _begin(self, carrying: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(carrying)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect_here(self, number: int) -> None:
        listener = self._listening.number if self._listening is not None else 0
        fields = {"listener": listener, "connection": number}
        try:
            async with asyncio.timeout(_CONNECT_S):
                if self.to.path:
                    reader, writer = await asyncio.open_unix_connection(self.to.path, limit=READ)
                else:
                    reader, writer = await asyncio.open_connection(self.to.host, self.to.port, limit=READ)
        except OSError as error:  # includes TimeoutError
            with contextlib.suppress(HermesError):
                self._link.call("forward.accept", fields).cancel()
            self._report_failure(_reason(error))
        else:
            await self._carry("forward.accept", fields, ForwardedConnection(reader, writer))

    async def _carry(self, operation: str, fields: dict[str, Any], tube: ForwardedConnection) -> None:
        try:
            answer = await tube.carry(self._link.call(operation, fields, tube))
        except HermesError as error:
            tube.reset()
            self._lose(error)
        else:
            if "error" in answer:
                self._report_failure(str(answer.get("message")))

    def _report_failure(self, reason: str) -> None:
        self._on_failure(f"{self.address}: cannot connect to {self.to}: {reason}")

    def _lose(self, error: BaseException) -> None:
        if not self._over.done():
            self._over.set_exception(error)
            self._over.exception()  # read it, so that asyncio does not report it

    async def wait(self) -> None:
        """Wait until it is closed.

        Raises:
            HermesError: the target was lost; a forward that listens here notices that when it is used.
        """
        await asyncio.shield(self._over)

    async def close(self) -> None:
        """Stop listening and reset every open connection. Safe to call twice."""
        if self._server is not None:
            self._server.close()
            if self.listen.path:
                remove_path(os.fsencode(self.listen.path), self._inode)
            self._server = None
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait((self._listening.answer,))
        await asyncio.sleep(0)  # a task that never ran would not release its socket
        await cancel_and_wait(self._tasks)
        if not self._over.done():
            self._over.set_result(None)

    async def __aenter__(self) -> Self:
        """Start to listen."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()


def _reason(error: OSError) -> str:
    """Return the system's text for an error; asyncio's own says less."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or "no answer in time"


def _refusal(at: Endpoint, where: str, code: object, reason: object) -> UsageError:
    """Return the error for an address that cannot be listened on."""
    remedy = "a shorter path in a folder that exists" if at.path else "127.0.0.1, or an address of its own"
    if code == errno.EADDRINUSE:
        reason = "something else listens there"
        remedy = "another path" if at.path else "another port, or 0 for a free one"
    elif code == errno.EACCES:
        remedy = "a folder that you may write to" if at.path else "a port above 1023"
    return UsageError(f"cannot listen on {at} {where}: {reason}", remedy=remedy)


class ForwardedConnection:
    """Copies bytes in both directions, each as fast as its reader. It is the sink of its request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._queue: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._end = b""
        self._written = 0

    def feed(self, call: RunningCommand, channel: int, data: bytes, /) -> None:
        """Receive bytes from the peer in the target, or the count of bytes after which its output ended."""
        if channel == wire.STDOUT:
            self._queue.append(data)
        else:
            self._end += data
            call.acknowledge(channel, len(data))
        self._wake.set()

    async def carry(self, call: GuestCall) -> dict[str, Any]:
        """Copy bytes until both directions have ended or the connection broke; return the answer of the guest.

        Raises:
            HermesError: the target was lost.
        """
        call.answer.add_done_callback(lambda _: self._wake.set())
        sending = asyncio.create_task(self._send(call))
        try:
            await self._receive(call)
            answer = call.answer.result()
            if not answer:  # both directions have ended
                self._writer.close()
                await self._writer.wait_closed()
        except OSError as error:  # the local socket broke
            return {"broken": str(error)}
        else:
            return answer
        finally:
            call.discard()
            call.cancel()
            await cancel_and_wait([sending])
            self.reset()

    def reset(self) -> None:
        """Reset the connection (RST), so that its peer can tell it from an end; no effect once it is closed."""
        if not self._writer.transport.is_closing():
            own: socket.socket = self._writer.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._writer.transport.abort()

    async def _send(self, call: GuestCall) -> None:
        try:
            while data := await self._reader.read(READ):
                await call.write(data)
        except OSError:
            call.cancel()
        else:
            call.write_eof()

    async def _receive(self, call: GuestCall) -> None:
        ended = False
        while True:
            while self._queue:
                data = self._queue.popleft()
                self._writer.write(data)
                await self._writer.drain()
                self._written += len(data)
                call.acknowledge(wire.STDOUT, len(data))
            if not ended and len(self._end) == wire.OFFSET.size:
                ended = wire.OFFSET.unpack(self._end)[0] == self._written
                if ended:
                    self._writer.write_eof()
            if call.answer.done():
                return
            self._wake.clear()
            await self._wake.wait()


class ListenerSink:
    """The sink of a listener in the target, which sends its port, then a number for each connection."""

    def __init__(self) -> None:
        self.port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.on_arrival: Callable[[int], None]
        self._held = b""

    def feed(self, call: RunningCommand, channel: int, data: bytes, /) -> None:
        """Receive bytes, eight for each number."""
        call.acknowledge(channel, len(data))
        self._held += data
        whole = len(self._held) // 8 * 8
        numbers = [number for (number,) in wire.OFFSET.iter_unpack(self._held[:whole])]
        self._held = self._held[whole:]
        for number in numbers:
            if self.port.done():
                self.on_arrival(number)
            else:
                self.port.set_result(number)
