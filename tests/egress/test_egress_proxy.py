"""The proxy connects to what was named, and to nothing else."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import UsageError
from hermes_exec_policies.egress import EgressProxy, HostPort, parse_hosts
from hermes_exec_policies.egress.proxy import is_public

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


async def asked(path: Path, request: bytes, payload: bytes = b"") -> bytes:
    """All that comes back of a request, and of ``payload`` after it."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(request)
    await writer.drain()
    head = await reader.readuntil(b"\r\n\r\n")
    if payload and b" 200 " in head:
        writer.write(payload)
        writer.write_eof()
        head += await reader.read()
    writer.close()
    return head


def status(answer: bytes) -> int:
    return int(answer.split(b" ")[1])


async def echoing() -> tuple[asyncio.Server, int]:
    """Somebody at a port of this machine, who says everything back in capitals."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, family=socket.AF_INET)
    return server, server.sockets[0].getsockname()[1]


def connect(target: str) -> bytes:
    return f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()


def test_a_named_host_is_reached_both_ways_and_told_of(tmp_path: Path) -> None:
    async def main() -> None:
        server, port = await echoing()
        async with server, EgressProxy([f"127.0.0.1:{port}"], tmp_path) as proxy:
            answer = await asked(proxy.path, connect(f"127.0.0.1:{port}"), b"hello")
            assert (status(answer), answer.endswith(b"HELLO")) == (200, True)
            assert [(each.port, each.status) for each in proxy.requests] == [(port, 200)]
        assert not proxy.path.exists()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (connect("other.example:443"), 403),
        (connect("named.example:80"), 403),
        (connect("named.example.:443"), 403),  # it is the same host, and its address is private
        (connect("NAMED.example:443"), 403),
        (connect("127.0.0.1:443"), 403),
        (connect("[::1]:443"), 403),
        (connect("sub.named.example:443"), 403),
        (connect("named.example"), 400),
        (connect("named.example:x"), 400),
        (connect("named.example:443@127.0.0.1"), 400),
        (b"GET http://named.example/ HTTP/1.1\r\nHost: named.example\r\n\r\n", 405),
        (b"POST / HTTP/1.1\r\n\r\n", 405),
        (b"\x16\x03\x01\r\n\r\n", 405),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, request_: bytes, expected: int) -> None:
    async def private(_host: str, _port: int) -> Sequence[str]:
        return ["10.0.0.1", "::ffff:127.0.0.1"]

    async def main() -> None:
        async with EgressProxy(["named.example"], tmp_path, look_up=private) as proxy:
            assert status(await asked(proxy.path, request_)) == expected

    asyncio.run(main())


def test_a_name_that_leads_to_a_private_address_reaches_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        server, port = await echoing()

        async def rebound(_host: str, _port: int) -> Sequence[str]:
            return ["127.0.0.1"]

        async with server, EgressProxy([f"named.example:{port}"], tmp_path, look_up=rebound) as proxy:
            assert status(await asked(proxy.path, connect(f"named.example:{port}"))) == 403
            assert proxy.requests[0].status == 403

    asyncio.run(main())


def test_a_name_that_means_nothing_is_a_bad_gateway(tmp_path: Path) -> None:
    async def nothing(_host: str, _port: int) -> Sequence[str]:
        raise socket.gaierror(-2, "no such name")

    async def main() -> None:
        async with EgressProxy(["named.example"], tmp_path, look_up=nothing) as proxy:
            assert status(await asked(proxy.path, connect("named.example:443"))) == 502

    asyncio.run(main())


def test_a_head_without_an_end_is_dropped(tmp_path: Path) -> None:
    async def main() -> None:
        async with EgressProxy(["named.example"], tmp_path) as proxy:
            reader, writer = await asyncio.open_unix_connection(proxy.path)
            writer.write(b"CONNECT " + b"a" * 20_000)
            assert await reader.read() == b""
            writer.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "address",
    [
        "10.1.2.3", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.168.1.1", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "192.0.2.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1", "2001:db8::1",
        "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "2001::1", "240.0.0.1", "", "name",
        "192.0.0.192", "168.63.129.16", "192.88.99.1", "fec0::1", "::ffff:168.63.129.16", "::ffff:169.254.169.254",
        "fd00:ec2::254", "100.100.100.200", "::127.0.0.1",
    ],
)  # fmt: skip
def test_an_address_that_is_not_the_internets_is_none(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:4700::1111", "::ffff:93.184.215.14"])
def test_an_address_of_the_internet_is_one(address: str) -> None:
    assert is_public(address)


def test_a_host_without_a_port_is_named_with_that_of_https() -> None:
    assert parse_hosts(["a.example", "b.example:8443"]) == {HostPort("a.example", 443), HostPort("b.example", 8443)}
    with pytest.raises(UsageError, match="invalid port"):
        parse_hosts(["a.example:99999"])
