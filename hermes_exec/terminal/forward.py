"""Port forwarding: a listener on one side, and for each of its connections one made on the other.

Bytes travel as streams of the link, so a slow reader on either side makes the writer on the other wait,
an end of one direction leaves the other open, and a broken link loses and repeats nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from hermes_exec.errors import HermesError, UsageError
from hermes_exec.guest.forward.service import bind_path, inode_of, remove_path
from hermes_exec.terminal.forwarded_connection import READ, Arrivals, Tube

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

    from hermes_exec.transport.call import Call
    from hermes_exec.transport.link import Link

_log = logging.getLogger("hermes_exec.terminal.forward")
_HERE = "127.0.0.1"
_CONNECT_S = 30.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to listen, or what to connect to: a TCP port, or a unix socket when ``path`` is given."""

    host: str = _HERE
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str | int) -> Endpoint:
        """Read ``8080``, ``host:8080``, ``[::1]:8080``, ``/path/of/socket`` or ``unix:path``.

        Without a host it is 127.0.0.1, so that nobody else gets in by an oversight.
        """
        word = str(text)
        if "/" in word or word.startswith("unix:"):
            return cls(path=word.removeprefix("unix:"))
        host, _, port = word.rpartition(":")
        if not port.isascii() or not port.isdigit() or int(port) > 0xFFFF:
            raise UsageError(f"{word!r} is no port", remedy="8080, host:8080, [::1]:8080 or /path/of/socket")
        return cls(host=host.removeprefix("[").removesuffix("]") or _HERE, port=int(port))

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def fields(self) -> dict[str, Any]:
        """As a request names it."""
        return {"host": self.host, "port": self.port, "path": os.fsencode(self.path)}


class Forward:
    """Connections to ``listen`` on one side are made to ``to`` on the other. Use it with ``async with``.

    It lasts until it is closed, its terminal is, or the place is lost.
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
        """Listen here and connect in the place; with ``reverse`` listen there and connect here.

        ``on_failure`` is told of each connection that could not be made; left out, it is logged.
        """
        self.listen: Endpoint = listen if isinstance(listen, Endpoint) else Endpoint.parse(listen)
        self.to: Endpoint = to if isinstance(to, Endpoint) else Endpoint.parse(to)
        self.reverse: bool = reverse
        self.address: Endpoint = self.listen
        """Where it listens; once it is started, with the port that was chosen for port 0."""
        self._link = link
        self._on_failure = on_failure or _log.warning
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._listening: Call | None = None
        self._inode = 0
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        return len(self._tasks)

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            UsageError: that cannot be listened on, and why; nothing listens.
        """
        self._link.need("forward")
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
                self._server = await asyncio.start_unix_server(self._accepted, sock=sock, limit=READ)
            else:
                self._server = await asyncio.start_server(self._accepted, host, at.port, limit=READ)
                self.address = Endpoint(at.host, self._server.sockets[0].getsockname()[1])
        except OSError as error:
            raise _refusal(at, "here", error.errno, _reason(error)) from error

    async def _listen_there(self) -> None:
        arrivals = Arrivals()
        arrivals.on_arrival = lambda number: self._begin(self._connect_here(number))
        call = self._listening = self._link.call("forward.listen", self.listen.fields, arrivals)
        try:
            await asyncio.wait((call.answer, arrivals.port), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            call.cancel()
            raise
        if call.answer.done():
            answer = call.answer.result()
            raise _refusal(self.listen, "in the place", answer.get("errno"), answer.get("message"))
        if not self.listen.path:
            self.address = Endpoint(self.listen.host, arrivals.port.result())
        call.answer.add_done_callback(self._listener_ended)

    def _listener_ended(self, answer: asyncio.Future[dict[str, Any]]) -> None:
        error = answer.exception()
        if error is not None:
            self._lose(error)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:  # closed while it was on its way
            Tube(reader, writer).reset()
        else:
            self._begin(self._carry("forward.connect", self.to.fields, Tube(reader, writer)))

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
        except OSError as error:  # a timeout is one too
            with contextlib.suppress(HermesError):
                self._link.call("forward.accept", fields).cancel()
            self._failed(_reason(error))
        else:
            await self._carry("forward.accept", fields, Tube(reader, writer))

    async def _carry(self, operation: str, fields: dict[str, Any], tube: Tube) -> None:
        try:
            answer = await tube.carry(self._link.call(operation, fields, tube))
        except HermesError as error:
            tube.reset()
            self._lose(error)
        else:
            if "error" in answer:
                self._failed(str(answer.get("message")))

    def _failed(self, reason: str) -> None:
        self._on_failure(f"{self.address}: a connection to {self.to} could not be made: {reason}")

    def _lose(self, error: BaseException) -> None:
        if not self._over.done():
            self._over.set_exception(error)
            self._over.exception()  # looked at, whether or not somebody waits

    async def wait(self) -> None:
        """Return when it is closed.

        Raises:
            HermesError: the place was lost, which a forward that listens here finds out when it is used.
        """
        await asyncio.shield(self._over)

    async def close(self) -> None:
        """Listen no more and break every connection that is open. Safe to call twice."""
        if self._server is not None:
            self._server.close()
            if self.listen.path:
                remove_path(os.fsencode(self.listen.path), self._inode)
            self._server = None
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait((self._listening.answer,))
        await asyncio.sleep(0)  # a task that never began would not let go of its socket
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not self._over.done():
            self._over.set_result(None)

    async def __aenter__(self) -> Self:
        """Begin to listen."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()


def _reason(error: OSError) -> str:
    """In the system's words; asyncio's own say less."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or "no answer in time"


def _refusal(at: Endpoint, where: str, code: object, reason: object) -> UsageError:
    """Why nothing listens."""
    remedy = "a shorter path in a folder that exists" if at.path else "127.0.0.1, or an address of its own"
    if code == errno.EADDRINUSE:
        reason = "something else listens there"
        remedy = "another path" if at.path else "another port, or 0 for a free one"
    elif code == errno.EACCES:
        remedy = "a folder that you may write to" if at.path else "a port above 1023"
    return UsageError(f"cannot listen on {at} {where}: {reason}", remedy=remedy)
