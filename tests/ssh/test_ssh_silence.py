"""A host that does not answer any more, or behind which something holds every byte, is given up and found again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any, Literal

import pytest

import hermes_exec
from hermes_exec.errors import OutcomeUnknown, PlaceError
from hermes_exec_backends.ssh import SshBackend
from tests.rigs.faulty_proxy import FaultyProxy

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.rigs.sshd import Sshd

pytestmark = pytest.mark.timeout(150)
_LIMIT_S = 60.0
"""Above all that is promised here by far, and far below a lease."""


def knowing(sshd: Sshd, proxy: FaultyProxy) -> dict[str, Any]:
    """What a profile has to say so that the host is known behind a proxy, too."""
    known = sshd.folder / f"known-{proxy.port}"
    return {"port": proxy.port, "known_hosts_path": known, "accept_new": True}


@contextlib.asynccontextmanager
async def held(sshd: Sshd, **options: Any) -> AsyncGenerator[tuple[hermes_exec.Terminal, FaultyProxy]]:
    """A terminal, and what is between it and its host."""
    with FaultyProxy(("127.0.0.1", sshd.port)) as proxy:
        async with asyncio.timeout(_LIMIT_S):
            profile = sshd.profile(keepalive_s=1.0, **options, **knowing(sshd, proxy))
            async with hermes_exec.open(SshBackend(profile), audit=False) as terminal:
                yield terminal, proxy


@pytest.mark.parametrize("transport", ["paramiko", "openssh"])
async def test_a_proxy_that_holds_every_byte_holds_nobody_up(sshd: Sshd, transport: str) -> None:
    async with held(sshd, transport=transport) as (terminal, proxy):
        await terminal.run("kept=1; rm -f ran")
        proxy.hold()
        with pytest.raises(OutcomeUnknown):
            await terminal.run("echo x >> ran", timeout=1)
        proxy.restore()
        result = await terminal.run("echo $kept; [ ! -e ran ] || cat ran")
        assert result.stdout in {b"1\n", b"1\nx\n"}


async def test_closing_behind_such_a_proxy_returns(sshd: Sshd) -> None:
    async with held(sshd) as (terminal, proxy):
        await terminal.run("true")
        proxy.hold()


@pytest.mark.parametrize("transport", ["paramiko", "openssh"])
async def test_a_host_whose_sshd_is_stopped_is_found_again_over_a_new_connection(
    sshd: Sshd, transport: Literal["paramiko", "openssh"]
) -> None:
    async with asyncio.timeout(_LIMIT_S):
        profile = sshd.profile(keepalive_s=1.0, transport=transport)
        async with hermes_exec.open(SshBackend(profile), audit=False) as terminal:
            await terminal.run("kept=1; rm -f ran")
            stopped = sshd.talking()
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            try:
                result = await terminal.run("echo $kept; echo x >> ran; cat ran")
            finally:
                for pid in stopped:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
            assert result.stdout == b"1\nx\n"


async def test_a_command_without_a_guest_is_lost_when_the_host_is_silent(sshd: Sshd) -> None:
    with FaultyProxy(("127.0.0.1", sshd.port)) as proxy:
        async with asyncio.timeout(_LIMIT_S):
            profile = sshd.profile(keepalive_s=1.0, **knowing(sshd, proxy))
            async with hermes_exec.open(SshBackend(profile), audit=False, carrier="plain") as terminal:
                async with terminal.stream(["sh", "-c", "echo in; sleep 1000"]) as stream:
                    assert (await anext(stream)).data == b"in\n"
                    proxy.hold()
                    with pytest.raises(PlaceError):
                        await stream.result()
                proxy.restore()
                assert (await terminal.run(["echo", "on"])).stdout == b"on\n"
