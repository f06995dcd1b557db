"""A server of the tests in a process of its own, whose methods are called from here.

A rig in the process of the tests would share its interpreter's lock, its descriptors and its threads with what is
measured and looked at. ``Apart("tests.rigs.mine:Server")`` makes one there; ``rig.call("method", …)`` runs its method,
a plain or an async one, on that process's event loop. It ends when this process does, however that comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import pickle
import socket
import struct
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
_LENGTH = struct.Struct(">I")


class RigError(AssertionError):
    """A method of the server raised; says what, with its traceback."""


class Apart:
    """The server ``where`` (``module:Class``), made with ``arguments``, which have to be picklable."""

    def __init__(self, where: str, **arguments: Any) -> None:
        ours, theirs = socket.socketpair()
        self._lock = threading.Lock()
        self._socket = ours
        paths = [str(_ROOT), *(str(_ROOT / name) for name in ("backends", "policies", "agent"))]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.rigs.apart", where, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        theirs.close()
        self.call("start", **arguments)

    @property
    def pid(self) -> int:
        """Of the server's process."""
        return self._process.pid

    def call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Run a method of the server, and wait for what it gives.

        Raises:
            RigError: it raised.
        """
        with self._lock:
            _send(self._socket, (name, args, kwargs))
            fine, value = _receive(self._socket)
        if not fine:
            raise RigError(f"{name}: {value}")
        return value

    def close(self) -> None:
        """End the server, with all that it runs. Safe to call twice."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._process.wait(60)
        self._socket.close()


def _send(connection: socket.socket, value: object) -> None:
    data = pickle.dumps(value)
    connection.sendall(_LENGTH.pack(len(data)) + data)


def _receive(connection: socket.socket) -> Any:
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    return pickle.loads(_exactly(connection, length))


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise RigError("the server has ended")
        data += part
    return data


async def _serve(server: Any, connection: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=connection)
    try:
        while True:
            (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
            name, args, kwargs = pickle.loads(await reader.readexactly(length))
            try:
                value = getattr(server, name)(*args, **kwargs)
                answer = True, await value if asyncio.iscoroutine(value) else value
            except Exception:  # noqa: BLE001  whoever called is told
                answer = False, traceback.format_exc()
            data = pickle.dumps(answer)
            writer.write(_LENGTH.pack(len(data)) + data)
            await writer.drain()
    except asyncio.IncompleteReadError:
        await server.stop()
    writer.close()


def main(where: str, fd: int) -> None:
    """Make the server, and serve until the other side hangs up."""
    module, _, name = where.partition(":")
    server = getattr(importlib.import_module(module), name)()
    asyncio.run(_serve(server, socket.socket(fileno=fd)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
