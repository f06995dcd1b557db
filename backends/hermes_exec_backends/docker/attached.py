"""The streams of a container's first process: messages of the launcher, followed by a program's output."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_exec.errors import PlaceUnavailable, ProtocolError
from hermes_exec_backends.docker.demux import ENGINE, STDERR, STDOUT, Demux
from hermes_exec_backends.docker.errors import Refused
from hermes_exec_backends.docker.sender import WAIT, Sender
from hermes_exec_backends.sandbox.control import LONGEST

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

_READ = 256 << 10
_LONGEST_HEADER = 64 << 10
_BEGUN = (101, 200)
_LENGTH = 4


class Attached:
    """One connection. Before ``begin`` standard output carries messages, each preceded by its length."""

    def __init__(self, connection: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = connection
        self._sender = Sender(connection)
        self._demux = Demux(self._deliver)
        self._pending = {STDOUT: bytearray(), STDERR: bytearray()}
        self._output: Callable[[int, bytes], None] | None = None
        self._more = asyncio.Event()
        self._over = asyncio.Event()

    async def start(self, version: str, container: str) -> None:
        """Attach to a container that was created and not yet started.

        Raises:
            PlaceUnavailable: the engine refused.
        """
        self._sender.write(
            f"POST /v{version}/containers/{container}/attach?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\n"
            "Host: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n".encode()
        )
        head = b""
        while b"\r\n\r\n" not in head:
            data = await self._loop.sock_recv(self._socket, _READ)
            head += data
            if not data or len(head) > _LONGEST_HEADER:
                raise PlaceUnavailable("docker: the engine closed the connection")
        header, _, rest = head.partition(b"\r\n\r\n")
        words = header.split(b" ", 2)
        code = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
        if code not in _BEGUN:
            raise Refused("docker: the engine gives no streams", code, rest[:300].decode("utf-8", "replace"))
        self._loop.add_reader(self._socket, self._readable)
        if rest:
            self._demux.feed(rest)

    async def message(self) -> bytes:
        """Return the launcher's next message; empty if the stream ended first.

        Raises:
            ProtocolError: it is longer than any of the launcher's messages.
        """
        got = self._pending[STDOUT]
        while True:
            size = int.from_bytes(got[:_LENGTH], "big") if len(got) >= _LENGTH else 0
            if size > LONGEST:
                raise ProtocolError("a container sent a message that is longer than any of the launcher's")
            if size and len(got) >= _LENGTH + size:
                found = bytes(got[_LENGTH : _LENGTH + size])
                del got[: _LENGTH + size]
                return found
            if self._over.is_set():
                return b""
            self._more.clear()
            await self._more.wait()

    @property
    def complaint(self) -> str:
        """Return the standard error so far."""
        return self._pending[STDERR].decode("utf-8", "replace").strip()

    def begin(self, output: Callable[[int, bytes], None]) -> None:
        """Pass all later output to ``output``."""
        self._output = output
        for kind, data in self._pending.items():
            if data:
                output(kind, bytes(data))
                data.clear()

    def send(self, data: bytes) -> None:
        """Queue bytes for standard input."""
        self._sender.write(data)

    def end_input(self) -> None:
        """Close standard input, after what is queued."""
        self._sender.write_eof()

    async def over(self) -> None:
        """Wait for the end of both outputs, which is the end of the container."""
        await self._over.wait()

    def close(self) -> None:
        """Close the connection."""
        self._loop.remove_reader(self._socket)
        self._sender.stop()
        self._socket.close()
        self._handle_end()

    def _readable(self) -> None:
        try:
            data = self._socket.recv(_READ)
        except WAIT:
            return
        except OSError:
            data = b""
        if data:
            self._demux.feed(data)
        else:
            self._loop.remove_reader(self._socket)
            self._handle_end()

    def _handle_end(self) -> None:
        self._over.set()
        self._more.set()

    def _deliver(self, kind: int, data: bytes, _whole: bool) -> None:  # noqa: FBT001  Demux's own word
        if kind == ENGINE:
            kind = STDERR
        if self._output is not None:
            self._output(kind, data)
        else:
            room = 2 * LONGEST - len(self._pending[kind])
            self._pending[kind] += data[:room]
            self._more.set()
