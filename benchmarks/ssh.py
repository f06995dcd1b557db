"""What a host over SSH costs: on the loopback beside the raw paramiko channel and beside ssh's shared connection,
and over a network of 100 ms each way beside ssh itself.
"""

from __future__ import annotations

import asyncio
import shlex
import shutil
import subprocess
import time
from functools import partial
from typing import TYPE_CHECKING

import hermes_exec
from benchmarks.figures import Figure, in_turns_async, median, spent, spent_async
from benchmarks.files import make_tree
from benchmarks.floors import RELAY, remote_text
from hermes_exec_backends.ssh import SshBackend
from hermes_exec_backends.ssh.host import resolve
from tests.rigs.netfault import Network, missing
from tests.rigs.sshd import Sshd

if TYPE_CHECKING:
    import paramiko

    from hermes_exec.terminal.session import Session
    from hermes_exec.terminal.terminal import Terminal

_READ = 256 << 10


def _raw(sshd: Sshd) -> paramiko.Transport:
    """A connection of paramiko's own, with small packets sent at once, as the best of its users make it."""
    import socket

    import paramiko

    host = resolve(sshd.profile())
    sock = socket.create_connection((host.address, host.port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    transport = paramiko.Transport(sock)
    transport.start_client(timeout=20)
    transport.auth_publickey(host.user, paramiko.Ed25519Key.from_private_key_file(str(host.keys[0])))
    return transport


def _channel(transport: paramiko.Transport, command: str) -> paramiko.Channel:
    channel = transport.open_session()
    channel.exec_command(command)
    return channel


def _echo(channel: paramiko.Channel) -> None:
    channel.sendall(b"hello\n")
    channel.recv(100)


def _live_bash(channel: paramiko.Channel, command: bytes = b"") -> None:
    """Run one command by a relay and its bash at the other end; none to wait for its start."""
    if command:
        channel.sendall(command + b"\0")
    while not channel.recv(65536).endswith(b"\0"):
        pass


def _client(sshd: Sshd, *more: str) -> list[str]:
    """ssh through a connection that it keeps."""
    options = ["-F", "none", "-i", str(sshd.key), "-p", str(sshd.port), "-l", sshd.user, "-S", f"{sshd.folder}/shared"]
    return ["ssh", *options, "-o", f"UserKnownHostsFile={sshd.folder}/known_hosts", *more, sshd.listen]


async def _latency(sshd: Sshd, terminal: Terminal, raw: paramiko.Transport, rounds: int) -> list[Figure]:
    session: Session = await terminal.session()
    channel = _channel(raw, "cat")
    words = [*_client(sshd), "true"]

    async def echoed() -> None:
        _echo(channel)

    relay = _channel(raw, remote_text(RELAY))
    _live_bash(relay)

    async def pass_relay() -> None:
        _live_bash(relay, b"true")

    await in_turns_async(1, lambda: session.run("true"), echoed, pass_relay)
    ours, echo, floor = await in_turns_async(rounds, lambda: session.run("true"), echoed, pass_relay)
    relay.close()
    client = [spent(lambda: subprocess.run(words, check=True)) for _ in range(rounds // 10)]
    many = [await terminal.session() for _ in range(100)]
    await asyncio.gather(*(each.run("true") for each in many))
    begin = time.perf_counter()
    for _ in range(10):
        await asyncio.gather(*(each.run("true") for each in many))
    at_once = 10 * len(many) / (time.perf_counter() - begin)
    for each in many:
        await each.close()
    true = median(ours) * 1e6
    return [
        Figure("SSH: session `true`", "µs", true, "echo on paramiko", median(echo) * 1e6, 4.0),
        Figure("SSH: session `true`", "µs", true, "`ssh`, shared connection", median(client) * 1e6, 0.05),
        Figure("SSH: session `true`", "µs", true, "floor: a live bash behind a relay", median(floor) * 1e6),
        Figure("SSH: 100 commands at once", "/s", at_once, "3,000 /s", 3000.0, 1.0, "higher"),
    ]


def _raw_stream(raw: paramiko.Transport, size: int) -> float:
    begin = time.perf_counter()
    channel = _channel(raw, f"head -c {size} /dev/zero")
    got = 0
    while data := channel.recv(_READ):
        got += len(data)
    return got / (time.perf_counter() - begin)


async def _stream(terminal: Terminal, size: int) -> float:
    begin = time.perf_counter()
    got = 0
    async with terminal.stream(["head", "-c", str(size), "/dev/zero"]) as events:
        async for event in events:
            got += len(event.data)
    return got / (time.perf_counter() - begin)


async def _throughput(sshd: Sshd, terminal: Terminal, raw: paramiko.Transport, size: int) -> list[Figure]:
    local = sshd.folder / "large"
    local.write_bytes(bytes(size))
    words = [*_client(sshd), "cat > by_ssh"]
    ups: list[float] = []
    clients: list[float] = []
    streams: list[float] = []
    raws: list[float] = []
    for _ in range(3):
        with local.open("rb") as file:
            clients.append(size / spent(partial(subprocess.run, words, stdin=file, check=True)))
        ups.append(size / await spent_async(lambda: terminal.files.upload(local, "by_us")))
        raws.append(_raw_stream(raw, size))
        streams.append(await _stream(terminal, size))
    return [
        Figure("SSH: a file up", "MB/s", median(ups) / 1e6, "`ssh host 'cat >'`", median(clients) / 1e6, 0.9, "higher"),
        Figure("SSH: a stream", "MB/s", median(streams) / 1e6, "raw channel", median(raws) / 1e6, 0.8, "higher"),
    ]


async def _trees(sshd: Sshd, terminal: Terminal, count: int) -> list[Figure]:
    tree = sshd.folder / "tree"
    make_tree(tree, count)
    client = shlex.join(_client(sshd))
    tar = f"tar cf - -C {tree} . | {client} 'rm -rf by_tar; mkdir by_tar && tar xf - -C by_tar'"
    program, *words = _client(sshd)[:-1]
    rsync = ["rsync", "-a", "-e", shlex.join([program, *words]), f"{tree}/", f"{sshd.listen}:by_rsync/"]
    times: dict[str, list[float]] = {"tar": [], "up": [], "rsync": [], "sync": []}
    for turn in range(5):
        times["tar"].append(spent(partial(subprocess.run, ["bash", "-c", tar], check=True)))
        times["up"].append(await spent_async(partial(terminal.upload, str(tree), f"up{turn}")))
        if shutil.which("rsync"):
            times["rsync"].append(spent(partial(subprocess.run, rsync, check=True)))
        times["sync"].append(await spent_async(partial(terminal.sync, str(tree), "synced")))
    middle = {name: median(seconds[1:]) * 1e3 for name, seconds in times.items() if seconds}
    figures = [Figure(f"SSH: {count} small files up", "ms", middle["up"], "`tar | ssh host tar`", middle["tar"], 1.0)]
    if "rsync" in middle:
        figures.append(Figure("SSH: unchanged re-sync", "ms", middle["sync"], "`rsync -a`", middle["rsync"], 1.0))
    return figures


async def _open_far(sshd: Sshd) -> tuple[float, float]:
    """Seconds for opening, and for one more command."""
    begin = time.perf_counter()
    async with hermes_exec.open(SshBackend(sshd.profile()), audit=False) as terminal:
        opened = time.perf_counter() - begin
        await terminal.run("true")
        return opened, median([await spent_async(lambda: terminal.run("true")) for _ in range(5)])


def _far(rounds: int) -> list[Figure]:
    with Network() as network, Sshd(listen=network.address, inside=network.inside) as sshd:
        words = [*_client(sshd, "-o", "ControlMaster=no", "-S", "none"), "true"]
        opens: dict[int, list[float]] = {50: [], 100: []}
        commands: dict[int, list[float]] = {50: [], 100: []}
        clients: list[float] = []
        for _ in range(rounds):
            for delay, seconds in opens.items():
                network.set(delay_ms=delay)
                took, each = asyncio.run(_open_far(sshd))
                seconds.append(took)
                commands[delay].append(each)
            clients.append(spent(lambda: subprocess.run(words, check=True)))
        # What a round trip more costs is what is paid in round trips; the rest is work, here and there.
        trips = (median(opens[100]) - median(opens[50])) / 0.1
        opened, client, command = (median(seconds) * 1e3 for seconds in (opens[100], clients, commands[100]))
        return [
            Figure("SSH at 100 ms each way: open", "round trips", trips, "8", 8.0, 1.0),
            Figure("SSH at 100 ms each way: open", "ms", opened, "`ssh host true`", client, 1.0),
            Figure("SSH at 100 ms each way: `true`", "ms", command, "a round trip", 200.0, 1.1),
        ]


async def _measure(sshd: Sshd, rounds: int, size: int, count: int) -> list[Figure]:
    raw = await asyncio.to_thread(_raw, sshd)
    master = [*_client(sshd, "-M", "-N", "-f")]
    subprocess.run(master, check=True, stderr=subprocess.DEVNULL)  # noqa: ASYNC221  before anything is measured
    try:
        async with hermes_exec.open(SshBackend(sshd.profile()), audit=False) as terminal:
            figures = await _latency(sshd, terminal, raw, rounds)
            figures += await _throughput(sshd, terminal, raw, size)
            return figures + await _trees(sshd, terminal, count)
    finally:
        subprocess.run([*_client(sshd, "-O", "exit")], check=False, stderr=subprocess.DEVNULL)  # noqa: ASYNC221  at the end
        raw.close()


def figures(rounds: int, size: int, count: int) -> list[Figure]:
    """Latency, commands at once, a file up and a stream down, small files, and opening from far away."""
    with Sshd() as sshd:
        near = asyncio.run(_measure(sshd, rounds, size, count))
    return near if missing() else near + _far(max(1, rounds // 80))
