"""Access to an engine in another target: a local socket, and a relay process in that target.

Each connection to the socket starts ``docker system dial-stdio`` there, or a few lines of Python if there is no
``docker`` program, and is connected to its streams. So the SDK and the raw sockets work as with an engine of this
machine, and no port is opened on either side.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec._async import cancel_and_wait
from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from hermes_exec.backend import Backend, Channel, Exit

_READ = 256 << 10
_WINDOW = 1 << 20
_RELAY = r"""
command -v docker >/dev/null 2>&1 && exec docker ${1:+--host "$1"} system dial-stdio
path=${1:-/var/run/docker.sock}
exec python3 -c '
import os, socket, sys, threading
s = socket.socket(socket.AF_UNIX)
try: s.connect(sys.argv[1])
except OSError as error: sys.exit("%s: %s" % (sys.argv[1], error.strerror))
def send():
    for data in iter(lambda: os.read(0, 1 << 18), b""): s.sendall(data)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=send, daemon=True).start()
for data in iter(lambda: s.recv(1 << 18), b""):
    while data: data = data[os.write(1, data):]
' "${path#unix://}"
"""


class Tunnel:
    """A private socket whose connections lead to the engine of an open target."""

    def __init__(self, outer: Backend, wanted: str | None) -> None:
        self._outer = outer
        self._argv = ["/bin/sh", "-c", _RELAY, "sh", wanted or ""]
        self._folder = Path(tempfile.gettempdir()) / f"hx-tunnel-{secrets.token_hex(8)}"
        self._server: asyncio.Server | None = None
        self._tied: set[asyncio.Task[None]] = set()
        self.complaint = ""
        """The last error output of a relay."""

    @property
    def address(self) -> str:
        """Return the socket's address in the engine's format."""
        return f"unix://{self._folder}/sock"

    async def open(self) -> None:
        """Start listening."""
        self._folder.mkdir(mode=0o700)
        self._server = await asyncio.start_unix_server(self._accept, self._folder / "sock", limit=_READ)

    async def close(self) -> None:
        """End every connection. Safe to call twice."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        await cancel_and_wait(self._tied)
        with contextlib.suppress(FileNotFoundError):
            (self._folder / "sock").unlink()
        self._folder.rmdir()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:  # closed during the start
            writer.close()
            return
        # A task of our own: asyncio prints a traceback when a handler of its server is cancelled.
        task = asyncio.get_running_loop().create_task(self._tie(reader, writer))
        self._tied.add(task)
        task.add_done_callback(self._tied.discard)
        task.add_done_callback(lambda _: writer.close())  # also for a task that is cancelled before it begins

    async def _tie(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back = _Back(writer)
        try:
            channel = back.channel = await self._outer.spawn(self._argv, back)
        except HermesError as error:
            self.complaint = error.what
            return
        try:
            while data := await reader.read(_READ):
                channel.write(data)
                if channel.unsent > _WINDOW:
                    await channel.drain()
            channel.write_eof()
            await back.ended.wait()
        except OSError:
            pass  # the client has disconnected
        finally:
            self.complaint = back.complaint or self.complaint
            channel.kill()


class _Back:
    """A receiver that passes the relay's output to the client, with flow control."""

    needs_output = True
    """Always true; see ``OutputReceiver``."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.channel: Channel | None = None
        self.ended = asyncio.Event()
        self.complaint = ""
        self._writer = writer
        self._draining: asyncio.Task[None] | None = None

    def on_data(self, data: bytes, /) -> None:
        """Send bytes from the engine to the client."""
        if self._writer.is_closing():
            return
        self._writer.write(data)
        if self._draining is None and self._writer.transport.get_write_buffer_size() > _WINDOW:
            self._draining = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        if self.channel is not None:
            self.channel.pause()
        with contextlib.suppress(OSError):
            await self._writer.drain()
        self._draining = None
        if self.channel is not None and not self.ended.is_set():
            self.channel.resume()

    def on_stderr(self, data: bytes, /) -> None:
        """Record the reason why there is no engine."""
        self.complaint = data.decode("utf-8", "replace").strip()[-300:]

    def on_close(self, exit: Exit, /) -> None:
        """Close the client's connection: the engine has closed it, or the relay is lost."""
        self.ended.set()
        with contextlib.suppress(OSError):
            self._writer.write_eof()
        if exit.lost:
            self._writer.close()
