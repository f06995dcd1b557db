"""Ports: connections through the target in both directions. Each direction tests the other, without a program there."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import UsageError
from hermes_exec.testing.behaviours import Behaviours, needs
from hermes_exec.testing.place import link

if TYPE_CHECKING:
    from hermes_exec.terminal.terminal import Terminal


@contextlib.asynccontextmanager
async def echo_here() -> AsyncGenerator[int]:
    """Run an echo server on this side; yield its port."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@contextlib.asynccontextmanager
async def there_and_back(terminal: Terminal) -> AsyncGenerator[int]:
    """Forward a local port into the target, and from there back to an echo server; yield the port."""
    async with (
        echo_here() as port,
        await terminal.forward("127.0.0.1:0", f"127.0.0.1:{port}", reverse=True) as back,
        await terminal.forward("127.0.0.1:0", str(back.address)) as there,
    ):
        yield there.address.port


async def echo_through(port: int, data: bytes) -> bytes:
    """Send bytes and the end of the stream, and return the reply."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def send() -> None:
        for start in range(0, len(data), 65536):
            writer.write(data[start : start + 65536])
            await writer.drain()
        writer.write_eof()

    _, back = await asyncio.gather(send(), reader.read(-1))
    writer.close()
    return back


class PortsSuite(Behaviours, exercises="channel"):
    """A forwarded connection carries bytes and the ends of its streams both ways."""

    @needs("forward")
    async def test_a_connection_goes_there_and_back(self, terminal: Terminal) -> None:
        async with there_and_back(terminal) as port:
            assert await echo_through(port, b"hello") == b"hello"
            assert await echo_through(port, b"") == b""

    @needs("forward")
    async def test_many_bytes_arrive_whole(self, terminal: Terminal) -> None:
        data = os.urandom(6_000_000)
        async with there_and_back(terminal) as port:
            assert await echo_through(port, data) == data

    @needs("forward")
    async def test_many_connections_at_once_are_kept_apart(self, terminal: Terminal) -> None:
        said = [os.urandom(20_000) for _ in range(20)]
        async with there_and_back(terminal) as port:
            assert await asyncio.gather(*(echo_through(port, data) for data in said)) == said

    @needs("forward", "reconnect")
    async def test_a_connection_outlives_the_connection_to_the_place(self, terminal: Terminal) -> None:
        data = os.urandom(8_000_000)
        async with there_and_back(terminal) as port:
            talking = asyncio.ensure_future(echo_through(port, data))
            for _ in range(3):
                await asyncio.sleep(0.03)
                link(terminal).break_connection()
            assert await talking == data

    @needs("forward")
    async def test_a_port_that_cannot_be_had_is_an_error_at_once(self, terminal: Terminal) -> None:
        async with echo_here() as taken:
            with pytest.raises(UsageError):
                await terminal.forward(f"127.0.0.1:{taken}", "127.0.0.1:1")

    @needs("forward")
    async def test_a_closed_forward_listens_no_more(self, terminal: Terminal) -> None:
        async with there_and_back(terminal) as port:
            pass
        with pytest.raises(OSError):  # noqa: PT011  refused, whichever way the system says it
            await asyncio.open_connection("127.0.0.1", port)
