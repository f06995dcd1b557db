"""A byte that changes on the way: it ends the connection, and the file arrives as it was."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

import hermes_exec
from hermes_exec_backends.ssh import SshBackend
from tests.rigs.sshd import Sshd

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

SIZE = 12 << 20
DAMAGED = 5 << 20
"""After so many bytes in one direction one of them is changed, once."""


class Damaging:
    """A relay to a server that changes one byte of all that it carries."""

    def __init__(self, port: int) -> None:
        self.done = False
        self._port = port
        self._carrying: set[asyncio.Task[None]] = set()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection."""
        there, to_there = await asyncio.open_connection("127.0.0.1", self._port)
        for source, target in ((reader, to_there), (there, writer)):
            task = asyncio.create_task(self._one_way(source, target))
            self._carrying.add(task)
            task.add_done_callback(self._carrying.discard)

    async def _one_way(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        carried = 0
        try:
            while data := await source.read(1 << 16):
                carried += len(data)
                if carried > DAMAGED and not self.done:
                    self.done = True
                    data = data[:-1] + bytes([data[-1] ^ 1])
                target.write(data)
                await target.drain()
        except ConnectionError:
            pass
        target.close()


@asynccontextmanager
async def damaging(sshd: Sshd) -> AsyncGenerator[tuple[Damaging, int]]:
    """The relay, and the port where it listens."""
    relay = Damaging(sshd.port)
    server = await asyncio.start_server(relay.carry, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        known = sshd.folder / "known_hosts"
        known.write_text(known.read_text().replace(f":{sshd.port} ", f":{port} "))
        yield relay, port


@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("transport", ["paramiko", "openssh"])
async def test_a_damaged_packet_is_never_content(transport: str, direction: str, tmp_path: Path) -> None:
    data = os.urandom(SIZE)
    with Sshd() as sshd:
        here, there = tmp_path / "here", sshd.home() / "there"
        (here if direction == "up" else there).write_bytes(data)
        async with damaging(sshd) as (relay, port):
            backend = SshBackend(sshd.profile(port=port, transport=transport))
            async with hermes_exec.open(backend, audit=False) as terminal:
                assert backend.traits.authenticated
                if direction == "up":
                    await terminal.upload(here, "there")
                else:
                    await terminal.download("there", here)
        assert relay.done
        assert here.read_bytes() == there.read_bytes() == data
