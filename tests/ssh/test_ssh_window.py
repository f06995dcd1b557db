"""A connection that breaks while it announces room for more: no byte is lost between two that are handed on."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from paramiko import common

import hermes_exec
from hermes_exec.errors import OutcomeUnknown
from hermes_exec_backends.ssh import SshBackend
from hermes_exec_backends.ssh.protocol_requests import Transport
from tests.rigs.sshd import Sshd

_DATA = os.urandom(10 << 20)
_SEND = "_send_user_message"
"""Where paramiko sends what belongs to a channel."""
_COMMAND = "cat random; cat random >&2"


class FailingSends:
    """Makes one WINDOW_ADJUST fail as a write to a broken socket does, on whichever connection it is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
        self.left = at
        send: Any = getattr(Transport, _SEND)

        def fail(transport: Transport, message: Any) -> None:
            if message.asbytes()[0] == common.MSG_CHANNEL_WINDOW_ADJUST:
                self.left -= 1
                if self.left == 0:
                    raise BrokenPipeError(32, "Broken pipe")
            send(transport, message)

        monkeypatch.setattr(Transport, _SEND, fail)


def watch_loop() -> list[dict[str, Any]]:
    """The failures of callbacks from now on, which asyncio otherwise prints."""
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    return failures


@pytest.mark.parametrize("cipher", ["aes256-gcm@openssh.com", "aes256-ctr"])
@pytest.mark.parametrize("at", [1, 3])
async def test_an_error_while_announcing_room_loses_no_byte(
    monkeypatch: pytest.MonkeyPatch, at: int, cipher: str
) -> None:
    failures = watch_loop()
    with Sshd(settings=f"Ciphers {cipher}") as sshd:
        (sshd.home() / "random").write_bytes(_DATA)
        async with hermes_exec.open(SshBackend(sshd.profile()), audit=False) as terminal:
            failing = FailingSends(monkeypatch, at)
            result = await terminal.run(_COMMAND, max_output=len(_DATA))
    assert failing.left <= 0
    assert (result.stdout == _DATA, result.stderr == _DATA, result.exit_code) == (True, True, 0)
    assert not failures


async def test_without_a_guest_such_an_error_leaves_the_outcome_unknown(
    sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sshd.home() / "random").write_bytes(_DATA)
    failures = watch_loop()
    async with hermes_exec.open(SshBackend(sshd.profile()), audit=False, carrier="plain") as terminal:
        failing = FailingSends(monkeypatch, 2)
        with pytest.raises(OutcomeUnknown):
            await terminal.run(_COMMAND, max_output=len(_DATA))
        assert failing.left == 0
        assert (await terminal.run("echo in")).stdout == b"in\n"
    assert not failures
