"""What goes through a forwarded connection, both ways and in both directions."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import socket
import struct
import threading
import urllib.request
from array import array
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.terminal.forward import Endpoint, Forward
from hermes_exec.transport.link import Link
from tests.rigs.breadth import thorough

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec.transport.protocol import RunningCommand

Live = Callable[[Callable[[Link], Awaitable[None]]], None]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

either_way = pytest.mark.parametrize("reverse", [False, True], ids=["into the place", "out of the place"])


@asynccontextmanager
async def serving(serve: Serve, path: str = "") -> AsyncGenerator[Endpoint]:
    """Something that listens, on either side of the link: here both are this machine."""

    async def whole(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await serve(reader, writer)
        writer.close()

    if path:
        server = await asyncio.start_unix_server(whole, path)
        yield Endpoint(path=path)
    else:
        server = await asyncio.start_server(whole, "127.0.0.1", 0)
        yield Endpoint(port=server.sockets[0].getsockname()[1])
    server.close()


async def dial(at: Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if at.path:
        return await asyncio.open_unix_connection(at.path)
    return await asyncio.open_connection(at.host, at.port)


async def talk(at: Endpoint, said: bytes) -> bytes:
    """Say all, end that direction, and hear all."""
    reader, writer = await dial(at)
    writer.write(said)
    writer.write_eof()
    heard = await reader.read(-1)
    writer.close()
    await writer.wait_closed()
    return heard


async def digest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers once the other has ended its direction, so it hears of that end."""
    summed = hashlib.sha256()
    while data := await reader.read(1 << 16):
        summed.update(data)
    writer.write(summed.hexdigest().encode())


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


def numbers(size: int) -> bytes:
    """Bytes in which every lost, repeated or moved one shows."""
    return array("I", range(size // 4)).tobytes()


class Output:
    """The output of a program in the place, and the port that it prints."""

    def __init__(self) -> None:
        self.port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._text = b""

    def feed(self, call: RunningCommand, channel: int, data: bytes, /) -> None:
        call.acknowledge(channel, len(data))
        self._text += data
        found = re.search(rb"port (\d+)", self._text)
        if found and not self.port.done():
            self.port.set_result(int(found.group(1)))


def get(at: Endpoint, path: str) -> bytes:
    """One HTTP request by a client that knows nothing of us."""
    with urllib.request.urlopen(f"http://{at}/{path}", timeout=30) as response:
        body: bytes = response.read()
        assert len(body) == int(response.headers["Content-Length"])
        return body


@either_way
def test_each_direction_ends_by_itself(live: Live, *, reverse: bool) -> None:
    async def scenario(link: Link) -> None:
        async with serving(digest) as to, Forward(link, 0, to, reverse=reverse) as forward:
            said = numbers(5_000_000)
            assert await talk(forward.address, said) == hashlib.sha256(said).hexdigest().encode()

    live(scenario)


@either_way
def test_peer_that_has_ended_its_sending_still_hears(live: Live, *, reverse: bool) -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def greet_then_listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.write_eof()
        await heard.put(await reader.read(-1))

    async def scenario(link: Link) -> None:
        async with serving(greet_then_listen) as to, Forward(link, 0, to, reverse=reverse) as forward:
            reader, writer = await dial(forward.address)
            assert await reader.read(-1) == b"hello"
            writer.write(b"and so on")
            writer.close()
            assert await heard.get() == b"and so on"

    live(scenario)


@either_way
def test_unix_sockets_carry_too(live: Live, tmp_path: Path, *, reverse: bool) -> None:
    async def scenario(link: Link) -> None:
        listen = str(tmp_path / "listen")
        async with (
            serving(digest, str(tmp_path / "to")) as to,
            Forward(link, listen, to, reverse=reverse) as forward,
        ):
            said = numbers(1_000_000)
            assert await talk(forward.address, said) == hashlib.sha256(said).hexdigest().encode()
            assert (tmp_path / "listen").stat().st_mode & 0o777 == 0o600
        assert not (tmp_path / "listen").exists()

    live(scenario)


@either_way
def test_many_connections_at_once_are_kept_apart(live: Live, *, reverse: bool) -> None:
    async def scenario(link: Link) -> None:
        async with serving(echo) as to, Forward(link, 0, to, reverse=reverse) as forward:
            said = [b"%d." % number * 2000 for number in range(200)]
            heard = await asyncio.gather(*(talk(forward.address, each) for each in said))
            assert heard == said

    live(scenario)


def test_http_server_in_the_place_answers_fifty_requests_at_once(live: Live, tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"page{number}").write_bytes(b"%d\n" % number * 10_000)

    async def scenario(link: Link) -> None:
        output = Output()
        argv = [b"python3", b"-u", b"-m", b"http.server", b"--bind", b"127.0.0.1", b"0"]
        link.call("exec", {"argv": argv, "cwd": bytes(tmp_path)}, output)
        async with Forward(link, 0, await output.port) as forward:
            pages = [asyncio.to_thread(get, forward.address, f"page{number}") for number in range(50)]
            for number, body in enumerate(await asyncio.gather(*pages)):
                assert body == b"%d\n" % number * 10_000

    live(scenario)


@thorough
def test_http_body_of_100_mb_comes_whole(live: Live, tmp_path: Path) -> None:
    body = numbers(100_000_000)
    (tmp_path / "large").write_bytes(body)

    async def scenario(link: Link) -> None:
        output = Output()
        argv = [b"python3", b"-u", b"-m", b"http.server", b"--bind", b"127.0.0.1", b"0"]
        link.call("exec", {"argv": argv, "cwd": bytes(tmp_path)}, output)
        async with Forward(link, 0, await output.port) as forward:
            assert await asyncio.to_thread(get, forward.address, "large") == body

    live(scenario)


class Page(BaseHTTPRequestHandler):
    body = numbers(20_000_000)

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def test_program_in_the_place_reaches_our_http_server(live: Live) -> None:
    async def scenario(link: Link) -> None:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            async with Forward(link, 0, server.server_address[1], reverse=True) as forward:
                expected = hashlib.sha256(Page.body).hexdigest()
                code = (
                    "import hashlib, sys, urllib.request\n"
                    f"body = urllib.request.urlopen('http://{forward.address}/').read()\n"
                    f"sys.exit(hashlib.sha256(body).hexdigest() != '{expected}')\n"
                )
                answer = await link.request("exec", {"argv": [b"python3", b"-c", code.encode()]})
                assert answer["code"] == 0
        finally:
            await asyncio.to_thread(server.shutdown)
            server.server_close()

    live(scenario)


@either_way
def test_reader_that_waits_makes_the_writer_wait_and_no_other(live: Live, *, reverse: bool) -> None:
    sent = [0]

    async def pour(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while sent[0] < 60_000_000:
            writer.write(bytes(100_000))
            await writer.drain()
            sent[0] += 100_000

    async def scenario(link: Link) -> None:
        async with (
            serving(pour) as pouring,
            serving(echo) as echoing,
            Forward(link, 0, pouring, reverse=reverse) as slow,
            Forward(link, 0, echoing, reverse=reverse) as quick,
        ):
            reader, writer = await dial(slow.address)
            before = -1
            while sent[0] != before or not before:
                before = sent[0]
                await asyncio.sleep(0.3)
            assert sent[0] < 30_000_000  # the window, and what kernels hold of three sockets
            assert await talk(quick.address, b"hi") == b"hi"
            assert len(await reader.read(-1)) == 60_000_000
            writer.close()

    live(scenario)


@either_way
def test_peer_that_does_not_read_makes_the_sender_wait(live: Live, *, reverse: bool) -> None:
    go_on = asyncio.Event()
    heard: asyncio.Queue[int] = asyncio.Queue()

    async def sleep_then_read(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await go_on.wait()
        await heard.put(len(await reader.read(-1)))

    async def scenario(link: Link) -> None:
        async with serving(sleep_then_read) as to, Forward(link, 0, to, reverse=reverse) as forward:
            _, writer = await dial(forward.address)
            sent = 0
            with contextlib.suppress(TimeoutError):
                while sent < 60_000_000:
                    writer.write(bytes(100_000))
                    sent += 100_000
                    async with asyncio.timeout(0.5):
                        await writer.drain()
            assert sent < 30_000_000
            go_on.set()
            writer.write_eof()
            assert await heard.get() == sent
            writer.close()

    live(scenario)


@either_way
def test_reset_by_the_caller_reaches_the_peer(live: Live, *, reverse: bool) -> None:
    outcome: asyncio.Queue[str] = asyncio.Queue()

    async def listen(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        try:
            await reader.read(5)
            await outcome.put("heard")
            await reader.read(-1)
        except ConnectionResetError:
            await outcome.put("reset")
        else:
            await outcome.put("end")

    async def scenario(link: Link) -> None:
        async with serving(listen) as to, Forward(link, 0, to, reverse=reverse) as forward:
            _, writer = await dial(forward.address)
            writer.write(b"hello")
            assert await outcome.get() == "heard"
            own: socket.socket = writer.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            assert await outcome.get() == "reset"

    live(scenario)


@either_way
def test_reset_by_the_peer_reaches_the_caller(live: Live, *, reverse: bool) -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(5)
        own: socket.socket = writer.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async def scenario(link: Link) -> None:
        async with serving(reset) as to, Forward(link, 0, to, reverse=reverse) as forward:
            reader, writer = await dial(forward.address)
            writer.write(b"hello")
            with pytest.raises(ConnectionResetError):
                await reader.read(-1)
            writer.close()

    live(scenario)


@thorough
@either_way
def test_download_is_whole_after_many_cuts(live: Live, *, reverse: bool) -> None:
    body = numbers(60_000_000)

    async def pour(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(body)
        await writer.drain()

    async def scenario(link: Link) -> None:
        async with serving(pour) as to, Forward(link, 0, to, reverse=reverse) as forward:
            reader, writer = await dial(forward.address)
            heard = bytearray()
            cuts = 0
            while data := await reader.read(1 << 18):
                heard += data
                if len(heard) > (cuts + 1) * 6_000_000:
                    cuts += 1
                    link.break_connection()
            assert cuts > 5
            assert heard == body
            writer.close()

    live(scenario)


@thorough
@either_way
def test_upload_is_whole_after_many_cuts(live: Live, *, reverse: bool) -> None:
    body = numbers(60_000_000)

    async def scenario(link: Link) -> None:
        async with serving(digest) as to, Forward(link, 0, to, reverse=reverse) as forward:
            reader, writer = await dial(forward.address)
            for start in range(0, len(body), 1_000_000):
                writer.write(body[start : start + 1_000_000])
                await writer.drain()
                if start % 6_000_000 == 0:
                    link.break_connection()
            writer.write_eof()
            assert await reader.read(-1) == hashlib.sha256(body).hexdigest().encode()
            writer.close()

    live(scenario)
