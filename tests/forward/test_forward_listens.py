"""Where a forward listens, what it says when something cannot be, and what is left when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Protocol

import pytest

from hermes_exec.errors import Closed, OutcomeUnknown, UsageError
from hermes_exec.terminal.forward import Endpoint, Forward
from hermes_exec.transport.link import Link
from tests.rigs.claims import free_port

if TYPE_CHECKING:
    from pathlib import Path

Live = Callable[[Callable[[Link], Awaitable[None]]], None]
Eventually = Callable[[Callable[[], bool]], Awaitable[None]]

either_way = pytest.mark.parametrize("reverse", [False, True], ids=["into the place", "out of the place"])


class Require(Protocol):
    def __call__(self, part: str, reason: str = "", *, usable: bool | None = None) -> str: ...


@contextlib.contextmanager
def taken_port() -> Generator[int]:
    """A port on which something listens that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


async def can_connect(host: str, port: int, path: Path | None = None) -> bool:
    try:
        if path is not None:
            reader, writer = await asyncio.open_unix_connection(path)
        else:
            reader, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return False
    with contextlib.suppress(ConnectionResetError):
        await reader.read(-1)  # until the other side has done with it
    writer.close()
    return True


async def closes(at: Endpoint) -> bool:
    """Whether a connection is made and then closed or reset without a byte."""
    reader, writer = await asyncio.open_connection(at.host, at.port)
    try:
        return await reader.read(1) == b""
    except ConnectionResetError:
        return True
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        (8080, Endpoint("127.0.0.1", 8080)),
        ("8080", Endpoint("127.0.0.1", 8080)),
        (":8080", Endpoint("127.0.0.1", 8080)),
        ("web:80", Endpoint("web", 80)),
        ("0.0.0.0:80", Endpoint("0.0.0.0", 80)),
        ("[::1]:80", Endpoint("::1", 80)),
        ("/run/app.sock", Endpoint(path="/run/app.sock")),
        ("unix:app.sock", Endpoint(path="app.sock")),
    ],
)
def test_endpoint_is_read(text: str | int, endpoint: Endpoint) -> None:
    assert Endpoint.parse(text) == endpoint


@pytest.mark.parametrize("text", ["", "web", "web:", "web:http", "70000", "-1", "1\u0661"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a port"):
        Endpoint.parse(text)


def test_endpoint_is_written_as_it_is_read() -> None:
    for text in ("127.0.0.1:80", "[::1]:80", "/run/app.sock"):
        assert str(Endpoint.parse(text)) == text


@either_way
def test_only_this_machine_is_listened_to_unless_asked(live: Live, *, reverse: bool) -> None:
    async def scenario(link: Link) -> None:
        async with Forward(link, 0, 1, reverse=reverse) as forward:
            assert forward.address.host == "127.0.0.1"
            assert not await can_connect("127.0.0.2", forward.address.port)
        async with Forward(link, "0.0.0.0:0", 1, reverse=reverse) as forward:
            assert await can_connect("127.0.0.2", forward.address.port)

    live(scenario)


@either_way
def test_taken_port_is_named(live: Live, *, reverse: bool) -> None:
    async def scenario(link: Link) -> None:
        where = "in the target" if reverse else "here"
        with taken_port() as port, pytest.raises(UsageError) as caught:
            await Forward(link, port, 1, reverse=reverse).start()
        assert str(caught.value) == (
            f"cannot listen on 127.0.0.1:{port} {where}: something else listens there."
            " Try: another port, or 0 for a free one"
        )

    live(scenario)


@either_way
def test_taken_path_is_named_and_its_listener_left_alone(live: Live, tmp_path: Path, *, reverse: bool) -> None:
    path = tmp_path / "taken"

    async def scenario(link: Link) -> None:
        server = await asyncio.start_unix_server(lambda _, writer: writer.close(), path)
        with pytest.raises(UsageError, match=r"something else listens there\. Try: another path"):
            await Forward(link, str(path), 1, reverse=reverse).start()
        assert await can_connect("", 0, path)
        server.close()

    live(scenario)


@either_way
def test_dead_socket_is_replaced(live: Live, tmp_path: Path, *, reverse: bool) -> None:
    path = tmp_path / "dead"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))

    async def scenario(link: Link) -> None:
        async with Forward(link, str(path), 1, reverse=reverse):
            assert await can_connect("", 0, path)

    live(scenario)


@either_way
def test_file_that_is_no_socket_is_kept(live: Live, tmp_path: Path, *, reverse: bool) -> None:
    (tmp_path / "file").write_text("precious")

    async def scenario(link: Link) -> None:
        with pytest.raises(UsageError, match="cannot listen"):
            await Forward(link, str(tmp_path / "file"), 1, reverse=reverse).start()

    live(scenario)
    assert (tmp_path / "file").read_text() == "precious"


@either_way
def test_address_of_another_machine_is_refused(live: Live, *, reverse: bool) -> None:
    async def scenario(link: Link) -> None:
        with pytest.raises(UsageError, match=r"cannot listen on 192\.0\.2\.1:0"):
            await Forward(link, "192.0.2.1:0", 1, reverse=reverse).start()

    live(scenario)


@either_way
def test_refused_connection_closes_the_caller_and_is_told(live: Live, eventually: Eventually, *, reverse: bool) -> None:
    async def scenario(link: Link) -> None:
        told: list[str] = []
        port = free_port()
        async with Forward(link, 0, port, reverse=reverse, on_failure=told.append) as forward:
            assert await closes(forward.address)
            await eventually(lambda: forward.connections == 0)
        (line,) = told
        assert line.startswith(f"{forward.address}: cannot connect to 127.0.0.1:{port}: ")
        assert "refused" in line

    live(scenario)


def test_failure_is_logged_when_nobody_asks_for_it(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(link: Link) -> None:
        async with Forward(link, 0, free_port()) as forward:
            assert await closes(forward.address)

    with caplog.at_level(logging.WARNING, "hermes_exec.terminal.forward"):
        live(scenario)
    assert ": Connection refused" in caplog.text


def test_missing_socket_in_the_place_is_told(live: Live, tmp_path: Path) -> None:
    async def scenario(link: Link) -> None:
        told: list[str] = []
        for path in (tmp_path / "missing", tmp_path / ("long" * 40)):
            async with Forward(link, 0, str(path), on_failure=told.append) as forward:
                assert await closes(forward.address)
        assert "No such file or directory" in told[0]
        assert len(told) == 2

    live(scenario)


def test_unknown_host_is_told_while_others_are_served(live: Live) -> None:
    async def scenario(link: Link) -> None:
        told: list[str] = []
        async with Forward(link, 0, "no-such-host.invalid:80", on_failure=told.append) as forward:
            closing = asyncio.create_task(closes(forward.address))
            assert (await link.request("exec", {"argv": [b"true"]}))["code"] == 0
            assert await closing
        assert len(told) == 1

    live(scenario)


def address_of(name: str) -> str:
    try:
        return str(socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)[0][4][0])
    except socket.gaierror:
        return ""


@pytest.mark.parametrize("name", ["localhost", socket.gethostname()])
def test_host_may_be_a_name(live: Live, name: str) -> None:
    address = address_of(name) or pytest.skip(f"{name} has no address here")

    async def scenario(link: Link) -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), address, 0)
        told: list[str] = []
        port = server.sockets[0].getsockname()[1]
        async with Forward(link, 0, f"{name}:{port}", on_failure=told.append) as forward:
            assert await closes(forward.address)
        assert told == []
        server.close()

    live(scenario)


@either_way
def test_end_of_a_forward_breaks_what_is_open_and_frees_the_port(
    live: Live, eventually: Eventually, *, reverse: bool
) -> None:
    async def scenario(link: Link) -> None:
        with taken_port() as port:
            forward = Forward(link, 0, port, reverse=reverse)
            await forward.start()
            reader, writer = await asyncio.open_connection(forward.address.host, forward.address.port)
            await eventually(lambda: forward.connections == 1)
            await forward.close()
            await forward.close()
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
            writer.close()
            assert forward.connections == 0
            assert not await can_connect(forward.address.host, forward.address.port)
            await forward.wait()

    live(scenario)


def test_connections_are_counted_while_they_are_open(live: Live, eventually: Eventually) -> None:
    async def scenario(link: Link) -> None:
        with taken_port() as port:
            async with Forward(link, 0, port) as forward:
                writers = [
                    (await asyncio.open_connection(forward.address.host, forward.address.port))[1] for _ in range(3)
                ]
                await eventually(lambda: forward.connections == 3)
                for writer in writers:
                    writer.transport.abort()

    live(scenario)


def test_listener_in_the_place_ends_with_its_client(live: Live) -> None:
    where: list[Endpoint] = []

    async def scenario(link: Link) -> None:
        forward = Forward(link, 0, 1, reverse=True)
        await forward.start()
        where.append(forward.address)
        await link.close()
        with pytest.raises(Closed):
            await forward.wait()

    live(scenario)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((where[0].host, where[0].port))


def test_lost_place_ends_the_wait(live: Live) -> None:
    async def scenario(link: Link) -> None:
        async with Forward(link, 0, 1, reverse=True) as forward:
            argv = [b"sh", b"-c", b"sed -n 's/^PPid://p' /proc/$PPID/status"]  # below a runner, below the guest
            guest = await output_of(link, argv)
            os.kill(int(guest), 9)
            with pytest.raises(OutcomeUnknown):
                await forward.wait()

    live(scenario)


async def output_of(link: Link, argv: list[bytes]) -> bytes:
    from hermes_exec.terminal.output import OutputCollector, SpoolFolder

    collector = OutputCollector(1 << 20, SpoolFolder())
    await link.request("exec", {"argv": argv}, collector)
    return collector.stdout.finish()[0]
