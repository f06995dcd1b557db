"""Whoever is cancelled while a host is reached or left leaves no connection, and nobody else without one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec_backends.ssh import SshBackend
from tests.rigs import cancelled
from tests.rigs.bounded import until
from tests.rigs.processes import tree
from tests.rigs.sshd import Sshd

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture
def own() -> Generator[Sshd]:
    with Sshd() as sshd:
        yield sshd


@pytest.mark.parametrize("transport", ["paramiko", "openssh"])
@pytest.mark.parametrize("many", [cancelled.openings, cancelled.closings])
async def test_whenever_it_comes_no_connection_is_left(own: Sshd, many: Any, transport: Any) -> None:
    await many(lambda: SshBackend(own.profile(transport=transport)))
    await until(lambda: not own.talking(), 10)


@pytest.mark.parametrize("transport", ["paramiko", "openssh"])
@pytest.mark.parametrize("after_s", cancelled.MOMENTS_S)
async def test_another_who_opens_the_host_at_that_time_gets_it(own: Sshd, transport: Any, after_s: float) -> None:
    profile = own.profile(transport=transport)
    first, second = (asyncio.ensure_future(hermes_exec.open(SshBackend(profile), audit=False)) for _ in range(2))
    await asyncio.wait([first], timeout=after_s)
    first.cancel()
    await asyncio.wait([first])
    async with await second as terminal:
        assert (await terminal.run("echo in")).stdout == b"in\n"
    if not first.cancelled():
        await first.result().close()
    await until(lambda: not own.talking(), 10)


async def test_on_a_connection_that_stays_no_channel_is_left(own: Sshd) -> None:
    """A host allows ten of them."""
    profile = own.profile()

    def below() -> int:
        return sum(len(tree(pid)) for pid in own.talking())

    async with hermes_exec.open(SshBackend(profile), audit=False) as terminal:
        await terminal.run("echo in")
        before = below()
        for tenths_of_ms in range(40):
            opening = asyncio.ensure_future(hermes_exec.open(SshBackend(profile), audit=False))
            await asyncio.wait([opening], timeout=tenths_of_ms / 10_000)
            opening.cancel()
            await asyncio.wait([opening])
        await until(lambda: below() == before, 20)
        assert (await terminal.run("echo on")).stdout == b"on\n"
