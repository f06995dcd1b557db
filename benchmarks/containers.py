"""Containers beside the raw exec socket, ``docker exec`` and the bare engine, on an engine of our own.

The raw socket is ``cat`` in an exec: what any protocol over it has to pay. The bare engine is a container
that is created and started by the SDK, and ``python3 -c pass`` in it.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, Any

import hermes_exec
from benchmarks.figures import Figure, in_turns_async, median, spent
from benchmarks.peers.serve import Peer
from hermes_exec_backends.docker import DockerBackend
from hermes_exec_backends.docker.demux import Demux
from tests.rigs.docker_engine import DEBIAN, Dockerd

if TYPE_CHECKING:
    from hermes_exec.terminal.terminal import Terminal

_READ = 256 << 10


def exec_socket(engine: Dockerd, container: str, argv: list[str]) -> socket.socket:
    """The raw socket of a new exec."""
    made = engine.client.exec_create(container, argv, stdin=True)
    found: Any = engine.client.exec_start(made, socket=True)
    connection: socket.socket = found._sock  # noqa: SLF001  the SDK hands out a reader of it
    return connection


def echo(connection: socket.socket) -> None:
    """One byte to ``cat`` and back, with its header."""
    connection.sendall(b"x")
    size = 0
    while size < 9:
        size += len(connection.recv(64))


def raw_stream(engine: Dockerd, container: str, argv: list[str], size: int) -> float:
    """Bytes a second through the raw socket, cut into streams by the same parser."""
    got = 0

    def count(_: int, data: bytes, __: object) -> None:
        nonlocal got
        got += len(data)

    begin = time.perf_counter()
    connection = exec_socket(engine, container, argv)
    demux = Demux(count)
    while data := connection.recv(_READ):
        demux.feed(data)
    connection.close()
    if got < size:
        raise AssertionError(f"{got} bytes of {size}")
    return size / (time.perf_counter() - begin)


async def stream(terminal: Terminal, argv: list[str], size: int) -> float:
    """Bytes a second through the terminal."""
    begin = time.perf_counter()
    got = 0
    async with terminal.stream(argv) as events:
        async for event in events:
            got += len(event.data)
    if got != size:
        raise AssertionError(f"{got} bytes of {size}")
    return size / (time.perf_counter() - begin)


def bare(engine: Dockerd) -> float:
    """A container started, and a Python that ends at once in it; its removal is not counted."""
    begin = time.perf_counter()
    host = engine.client.create_host_config(network_mode="none")
    made = engine.client.create_container(DEBIAN, ["sleep", "60"], host_config=host)
    engine.client.start(made)
    run = engine.client.exec_create(made, ["python3", "-c", "pass"])
    engine.client.exec_start(run)
    took = time.perf_counter() - begin
    engine.client.remove_container(made, force=True)
    return took


async def opened(engine: Dockerd) -> float:
    """A terminal opened, ready for its first command; its closing is not counted."""
    backend = DockerBackend(engine.profile())
    begin = time.perf_counter()
    terminal = await hermes_exec.open(backend, audit=False)
    took = time.perf_counter() - begin
    await terminal.close()
    return took


def _hermes_agent(engine: Dockerd, home: str) -> Peer:
    """Its Docker environment, with a container of the same image."""
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    peer = Peer("hermes-agent", home, "docker", engine.image(DEBIAN), DOCKER_HOST=engine.address, PATH=path)
    peer.run("true")
    return peer


async def _measure(engine: Dockerd, peer: Peer, rounds: int, size: int) -> list[Figure]:
    backend = DockerBackend(engine.profile())
    async with hermes_exec.open(backend, audit=False) as terminal:
        container = backend.target.partition("@")[2]
        session = await terminal.session()
        connection = exec_socket(engine, container, ["cat"])
        command = ["docker", "--host", engine.address, "exec", container, "true"]

        async def echoed() -> None:
            echo(connection)

        await in_turns_async(1, lambda: session.run("true"), echoed)
        ours, echoes = await in_turns_async(rounds, lambda: session.run("true"), echoed)
        agent = [peer.run("true") for _ in range(rounds // 10)]
        client = [spent(lambda: subprocess.run(command, check=True)) for _ in range(rounds // 10)]
        connection.close()
        producer = ["head", "-c", str(size), "/dev/zero"]
        streams: list[float] = []
        floor: list[float] = []
        for _ in range(3):
            floor.append(raw_stream(engine, container, producer, size))
            streams.append(await stream(terminal, producer, size))
    opens: list[float] = []
    starts: list[float] = []
    for _ in range(max(3, rounds // 20)):
        starts.append(bare(engine))
        opens.append(await opened(engine))
    mine = median(ours) * 1e3
    return [
        Figure("docker: session `true`", "ms", mine, "echo on the raw exec socket", median(echoes) * 1e3, 4.0),
        Figure("docker: session `true`", "ms", mine, "`docker exec`", median(client) * 1e3, 0.01),
        Figure("docker: session `true`", "ms", mine, "hermes-agent's Docker", median(agent) * 1e3, 0.01),
        Figure("docker: stream", "MB/s", median(streams) / 1e6, "raw exec socket", median(floor) / 1e6, 0.8, "higher"),
        Figure("docker: open", "ms", median(opens) * 1e3, "bare start + Python", median(starts) * 1e3, 1.25),
    ]


def figures(rounds: int, size: int) -> list[Figure]:
    """Commands, streams and opening; needs root and a dockerd to start."""
    engine = Dockerd()
    try:
        engine.image(DEBIAN)
        with tempfile.TemporaryDirectory() as home:
            peer = _hermes_agent(engine, home)
            try:
                return asyncio.run(_measure(engine, peer, rounds, size))
            finally:
                peer.close()
    finally:
        engine.remove()
