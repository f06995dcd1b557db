"""Terminals of the rig's Daytona over WebSockets, with the habits of its daemon.

assumed: all of it after the public v0.190 of the daemon (process/pty): an interactive login shell; what it writes
goes in binary messages of at most 32 KiB to every client; a client for whom 256 of them wait is dropped, with close
code 1008, and what came in between may be missing; an input message is at most 64 KiB; a closed connection ends
nothing; the shell's end closes every connection at once, whatever is still to be sent; deleting one kills
everything below its shell.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from typing import TYPE_CHECKING

from aiohttp import WSMsgType, web

from tests.rigs.cell_process import write_all

if TYPE_CHECKING:
    from tests.rigs.cell import Cell
    from tests.rigs.cell_process import Process

SHELL = ("bash", "-i", "-l")
_READ = 32 << 10
_QUEUE = 256
_LONGEST_INPUT = 64 << 10
_INPUTS = 1024
_KILL = """
import os, sys
below = {}
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open("/proc/%s/stat" % name) as file:
            below.setdefault(int(file.read().rpartition(")")[2].split()[1]), []).append(int(name))
    except OSError:
        pass
def end(pid):
    for child in below.get(pid, []):
        end(child)
    try:
        os.kill(pid, 9)
    except OSError:
        pass
end(int(sys.argv[1]))
"""


class Client:
    """One WebSocket of a terminal."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self.socket = socket
        self.queue: asyncio.Queue[bytes] = asyncio.Queue(_QUEUE)

    async def write(self) -> None:
        """Send what is queued, for ever."""
        while True:
            await self.socket.send_bytes(await self.queue.get())


class Pty:
    """A terminal with its shell."""

    def __init__(self, id: str, process: Process, cell: Cell) -> None:
        self.id = id
        self.dropped = 0
        """Clients that were too slow."""
        self.given = 0
        """Bytes that the clients were given."""
        self._skips = False
        self._cell = cell
        self._process = process
        self._clients: set[Client] = set()
        self._input: asyncio.Queue[bytes] = asyncio.Queue(_INPUTS)
        self._tasks = [asyncio.create_task(self._feed()), asyncio.create_task(self._until_exit())]
        self.over = asyncio.Event()
        asyncio.get_running_loop().add_reader(process.pty, self._readable)

    @classmethod
    async def start(cls, id: str, cell: Cell, rows: int, columns: int, cwd: str, env: dict[str, str]) -> Pty:
        """Start a shell in a terminal of its own."""
        variables = {"TERM": "xterm-256color", **env}
        return cls(id, await cell.exec(SHELL, env=variables, cwd=cwd or "/root", pty=(rows, columns)), cell)

    def _readable(self) -> None:
        try:
            data = os.read(self._process.pty, _READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._process.pty)
            return
        self.given += len(data)
        for client in list(self._clients):
            try:
                if self._skips:
                    self._skips = False
                    raise asyncio.QueueFull  # noqa: TRY301  as if it were
                client.queue.put_nowait(data)
            except asyncio.QueueFull:
                self.dropped += 1
                self._tasks.append(asyncio.create_task(self._drop(client)))

    async def _drop(self, client: Client) -> None:
        await client.socket.close(code=1008, message=b"slow consumer")

    async def _feed(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                await write_all(self._process.pty, await self._input.get())

    async def _until_exit(self) -> None:
        code = await self._process.wait()
        await self._end(code if code >= 0 else 128 - code)

    async def attach(self, socket: web.WebSocketResponse) -> None:
        """Serve one client until it or the shell is gone."""
        client = Client(socket)
        self._clients.add(client)
        writing = asyncio.create_task(client.write())
        try:
            await socket.send_str(json.dumps({"type": "control", "status": "connected"}))
            async for message in socket:
                if message.type not in {WSMsgType.BINARY, WSMsgType.TEXT}:
                    break
                await self._input.put(message.data if message.type is WSMsgType.BINARY else message.data.encode())
        except OSError:
            pass  # the client is gone
        finally:
            self._clients.discard(client)
            writing.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await writing

    async def skip(self) -> None:
        """Leave the next output out, as it is for a client that is too slow."""
        self._skips = True

    async def kill(self) -> None:
        """Kill everything below its shell, leaves first, and the shell."""
        killing = await self._cell.exec(["/usr/bin/python3", "-ISc", _KILL, str(self._process.pid)])
        await killing.communicate()
        await self._process.wait()
        await self.over.wait()

    async def lost(self) -> None:
        """The sandbox is gone; so are the connections, which whoever serves them breaks."""
        await self._end(-1)

    async def _end(self, code: int) -> None:
        if self.over.is_set():
            return
        self.over.set()
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._process.pty)
        clients, self._clients = self._clients, set()
        for client in clients if code >= 0 else ():
            with contextlib.suppress(OSError):
                await client.socket.send_str(json.dumps({"type": "control", "status": "exited", "exitCode": code}))
                await client.socket.close(code=1000 if code == 0 else 1011)
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._process.close()
