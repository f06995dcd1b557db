"""Connections that are cut at random bytes, by FIN and by RST: what commands print arrives as it was, once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec_backends.ssh import SshBackend
from tests.rigs.breadth import examples
from tests.rigs.sshd import Sshd

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

_DATA = os.urandom(8 << 20)
_AT_ONCE = 4


class Cutter:
    """A relay to a server that cuts each connection after a random number of bytes in one direction."""

    def __init__(self, port: int, chance: random.Random) -> None:
        self.cuts = 0
        self._port = port
        self._chance = chance

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection to its end."""
        there, to_there = await asyncio.open_connection("127.0.0.1", self._port)
        most = self._chance.choice([40_000, 4_000_000, 20_000_000])
        limits = [self._chance.randrange(8000, most), 1 << 60]
        self._chance.shuffle(limits)
        ways = [
            asyncio.ensure_future(self._one_way(source, target, limit))
            for source, target, limit in zip((reader, there), (to_there, writer), limits, strict=True)
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        resets = self._chance.random() < 0.5
        for way, end in zip(ways, (writer, to_there), strict=True):
            way.cancel()
            if resets:
                end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()

    async def _one_way(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, left: int) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                target.write(data[:left])
                await target.drain()
                left -= len(data)
                if left <= 0:
                    self.cuts += 1
                    return


@pytest.fixture
def host() -> Generator[Sshd]:
    with Sshd() as sshd:
        (sshd.home() / "random").write_bytes(_DATA)
        yield sshd


@contextlib.asynccontextmanager
async def cutting(host: Sshd) -> AsyncGenerator[tuple[Cutter, int]]:
    """The relay, and the port where it listens."""
    cutter = Cutter(host.port, random.Random(20))
    server = await asyncio.start_server(cutter.carry, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    known = host.folder / "known_hosts"
    known.write_text(known.read_text().replace(f":{host.port} ", f":{port} "))
    try:
        yield cutter, port
    finally:
        server.close()


async def test_cuts_at_random_bytes_lose_double_and_change_nothing(
    host: Sshd, capfd: pytest.CaptureFixture[str]
) -> None:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

    async def work(port: int, seed: int) -> None:
        chance = random.Random(seed)
        async with hermes_exec.open(SshBackend(host.profile(port=port)), audit=False) as terminal:
            for _ in range(examples(150)):
                size = chance.randrange(1, chance.choice([200, 100_000, 6_000_000]))
                at = chance.randrange(0, len(_DATA) - size)
                wanted = _DATA[at : at + size]
                if chance.random() < 0.7:
                    script = f"tail -c +{at + 1} random | head -c {size} | tee /dev/stderr"
                    result = await terminal.run(["sh", "-c", script], max_output=size)
                    assert result.stderr == wanted
                else:
                    result = await terminal.run(["cat"], stdin=wanted, max_output=size)
                assert result.exit_code == 0
                assert result.stdout == wanted

    async with cutting(host) as (cutter, port):
        await asyncio.gather(*(work(port, seed) for seed in range(_AT_ONCE)))
    assert cutter.cuts > _AT_ONCE
    assert not failures
    assert capfd.readouterr().err == ""
