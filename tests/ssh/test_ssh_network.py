"""A network that fails under an open terminal: nothing runs twice, and nothing is lost."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

import hermes_exec
from hermes_exec.testing.place import wait_until
from hermes_exec_backends.ssh import SshBackend
from tests.conftest import require_part
from tests.rigs.netfault import Network, missing
from tests.rigs.sshd import Sshd

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec._async import AwaitableContextManager
    from hermes_exec.terminal.terminal import Terminal

_DATA = os.urandom(6_000_000)
_HOLES = [pytest.param(4.0, id="4s"), pytest.param(60.0, id="60s", marks=[pytest.mark.soak, pytest.mark.timeout(300)])]


@pytest.fixture(scope="module")
def network() -> Generator[Network]:
    if why := missing():
        require_part("a network to break", why, usable=False)
    with Network() as network:
        yield network


@pytest.fixture(scope="module")
def far(network: Network) -> Generator[Sshd]:
    with Sshd(listen=network.address, inside=network.inside) as sshd:
        yield sshd


@pytest.fixture(autouse=True)
def whole(request: pytest.FixtureRequest) -> Generator[None]:
    network: Network = request.getfixturevalue("network")
    yield
    network.set(delay_ms=0, loss=0, blackhole=0)


def opened(far: Sshd) -> AwaitableContextManager[hermes_exec.Terminal]:
    return hermes_exec.open(SshBackend(far.profile(keepalive_s=1.0)), audit=False)


async def _swallow(network: Network, seconds: float) -> None:
    network.set(blackhole=1)
    await asyncio.sleep(seconds)
    network.set(blackhole=0)


async def test_a_slow_network_costs_one_round_trip_for_a_command(network: Network, far: Sshd) -> None:
    async with opened(far) as terminal:
        await terminal.run("true")
        network.set(delay_ms=100)
        took: list[float] = []
        for _ in range(5):
            begin = time.monotonic()
            assert (await terminal.run("echo in")).stdout == b"in\n"
            took.append(time.monotonic() - begin)
        assert 0.2 <= min(took) < 0.4


async def test_the_ssh_program_too_sends_less_to_a_host_that_is_far(network: Network, far: Sshd) -> None:
    network.set(delay_ms=100)
    backend = SshBackend(far.profile(transport="openssh"))
    async with hermes_exec.open(backend, audit=False) as terminal:
        assert backend.traits.high_latency
        assert (await terminal.run("echo hi")).stdout == b"hi\n"


async def test_many_lost_packets_lose_nothing(network: Network, far: Sshd) -> None:
    async with opened(far) as terminal:
        network.set(delay_ms=10, loss=5)
        results = await asyncio.gather(*(terminal.run(["sh", "-c", f"echo {n}"]) for n in range(50)))
        assert [result.stdout for result in results] == [b"%d\n" % n for n in range(50)]
        back = await terminal.run(["cat"], stdin=_DATA[:300_000], max_output=len(_DATA))
        assert back.stdout == _DATA[:300_000]


@pytest.mark.parametrize("seconds", _HOLES)
async def test_a_command_outlives_a_hole(network: Network, far: Sshd, seconds: float) -> None:
    async with opened(far) as terminal:
        await terminal.run("rm -f count; kept=here")
        running = asyncio.ensure_future(terminal.run(f"echo x >> count; sleep {seconds / 2}; echo done; (exit 3)"))
        await wait_until(lambda: _counted(far))
        await _swallow(network, seconds)
        result = await running
        assert (result.stdout, result.exit_code) == (b"done\n", 3)
        assert (await terminal.run("echo $kept; cat count")).stdout == b"here\nx\n"


async def _counted(far: Sshd) -> bool:
    return (far.home() / "count").exists()


@pytest.mark.parametrize("seconds", _HOLES)
async def test_an_upload_outlives_a_hole(network: Network, far: Sshd, seconds: float) -> None:
    async with opened(far) as terminal:
        network.set(delay_ms=5)
        writing = asyncio.ensure_future(terminal.files.write("uploaded", _DATA))
        await asyncio.sleep(0.1)
        await _swallow(network, seconds)
        await writing
        assert await _digest(terminal, "uploaded") == hashlib.sha256(_DATA).hexdigest()


async def _digest(terminal: Terminal, name: str) -> str:
    return (await terminal.run(["sha256sum", name])).stdout_text.split()[0]


@pytest.mark.parametrize("seconds", _HOLES)
async def test_a_stream_outlives_a_hole(network: Network, far: Sshd, seconds: float) -> None:
    wanted = b"".join(b"%d\n" % n for n in range(400_000))
    seen = bytearray()
    async with opened(far) as terminal:
        hole = None
        async with terminal.stream("seq 0 399999") as events:
            async for event in events:
                seen += event.data
                if hole is None and len(seen) > 100_000:
                    hole = asyncio.ensure_future(_swallow(network, seconds))
        if hole is not None:
            await hole
    assert seen == wanted


async def test_a_connection_that_is_reset_is_replaced(network: Network, far: Sshd) -> None:
    iptables = require_part("iptables", "refuses packets of an open connection")
    rule = ["OUTPUT", "-p", "tcp", "-d", network.address, "-j", "REJECT", "--reject-with", "tcp-reset"]
    async with opened(far) as terminal:
        await terminal.run("kept=here")
        logins = far.log().count("Accepted publickey")
        await asyncio.to_thread(subprocess.run, [iptables, "-w", "-I", *rule], check=True)
        try:
            running = asyncio.ensure_future(terminal.run("echo $kept"))
            await asyncio.sleep(0.5)
        finally:
            await asyncio.to_thread(subprocess.run, [iptables, "-w", "-D", *rule], check=True)
        assert (await running).stdout == b"here\n"
        await wait_until(lambda: _logged_in(far, logins + 1))


async def _logged_in(far: Sshd, times: int) -> bool:
    return far.log().count("Accepted publickey") >= times
