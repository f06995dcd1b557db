"""The ssh program as the way: whose master it uses, and what it does when logging in again needs a person."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.errors import ConfigError, PlaceUnavailable
from hermes_exec.testing.place import wait_until
from hermes_exec_backends.ssh import SshBackend, openssh
from tests.rigs.sshd import Sshd, program
from tests.ssh.conftest import said

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


@pytest.fixture
def own() -> Generator[Sshd]:
    program("ssh", "the program that is used")
    with Sshd() as sshd:
        yield sshd


def logins(sshd: Sshd) -> int:
    return sshd.log().count("Accepted publickey")


async def test_terminals_share_one_login_and_leave_nothing(own: Sshd) -> None:
    profile = own.profile(transport="openssh")
    async with hermes_exec.open(SshBackend(profile), audit=False) as one:
        async with hermes_exec.open(SshBackend(profile), audit=False) as two:
            assert [(await each.run("echo in")).stdout for each in (one, two)] == [b"in\n"] * 2
        assert (await one.run("echo still")).stdout == b"still\n"
        assert logins(own) == 1
    await wait_until(lambda: _closed(own))


async def _closed(sshd: Sshd) -> bool:
    return not sshd.talking()


def test_a_master_that_somebody_keeps_is_used_and_left(own: Sshd, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(f"Host *\n  ControlPath {tmp_path}/kept\n  IdentityAgent none\n")
    options = ["-F", str(config), "-p", str(own.port), "-l", own.user, "-i", str(own.key)]
    options += ["-o", f"UserKnownHostsFile={own.folder}/known_hosts", own.listen]
    subprocess.run(["ssh", "-M", "-N", "-f", *options], check=True, stderr=subprocess.DEVNULL)
    try:
        profile = own.profile(transport="openssh", config_path=str(config), key_path=None)
        assert said(profile) == "in\n"
        assert logins(own) == 1
        check = ["ssh", "-O", "check", *options]
        assert subprocess.run(check, check=False, capture_output=True).returncode == 0
    finally:
        subprocess.run(["ssh", "-O", "exit", *options], check=True, capture_output=True)


async def test_a_master_that_died_is_replaced(own: Sshd) -> None:
    async with hermes_exec.open(SshBackend(own.profile(transport="openssh")), audit=False) as terminal:
        await terminal.run("kept=here")
        await asyncio.to_thread(own.stop)
        await asyncio.to_thread(own.start)
        assert (await terminal.run("echo $kept")).stdout == b"here\n"


async def test_where_only_a_person_can_log_in_again_it_waits_and_says_so(
    own: Sshd, caplog: pytest.LogCaptureFixture
) -> None:
    keys = own.folder / "authorized_keys"
    allowed = keys.read_text()
    async with hermes_exec.open(SshBackend(own.profile(transport="openssh")), audit=False) as terminal:
        await terminal.run("kept=here")
        await asyncio.to_thread(own.stop)
        keys.write_text("")
        await asyncio.to_thread(own.start)
        with caplog.at_level(logging.WARNING, "hermes_exec.ssh"):
            running = asyncio.ensure_future(terminal.run("echo $kept"))
            await wait_until(lambda: _told(caplog))
        tried = own.log().count("Connection closed by authenticating user")
        await asyncio.sleep(2.5)  # some times as long as it looks whether somebody has come
        assert own.log().count("Connection closed by authenticating user") == tried
        keys.write_text(allowed)
        command = caplog.messages[-1].partition("logs in again: ")[2]
        await asyncio.to_thread(subprocess.run, command, shell=True, check=True, stderr=subprocess.DEVNULL)
        assert (await running).stdout == b"here\n"


async def _told(caplog: pytest.LogCaptureFixture) -> bool:
    return any("Waiting until a user logs in again" in message for message in caplog.messages)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"key_path": "/nothing/there"}, "Permission denied"),
        ({"known_hosts_path": "/nothing/there"}, "Host key verification failed"),
        ({"host": "no-such-host.invalid"}, "Could not resolve"),
        ({"port": 1}, "refused"),
    ],
)
def test_what_ssh_complains_about_is_told(own: Sshd, options: dict[str, Any], hint: str) -> None:
    with pytest.raises(PlaceUnavailable, match=hint) as caught:
        said(own.profile(transport="openssh", **options))
    assert caught.value.remedy


def test_a_host_that_says_nothing_is_told_of_when_the_time_for_logging_in_is_over(
    own: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openssh, "_ALONE_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        profile = own.profile(transport="openssh", port=silent.getsockname()[1])
        with pytest.raises(PlaceUnavailable, match="no answer within 1 s"):
            asyncio.run(SshBackend(profile).open())


def test_a_password_is_refused_beforehand(own: Sshd) -> None:
    with pytest.raises(ConfigError, match="takes no password"):
        said(own.profile(transport="openssh", password="env:HOST_PASSWORD"))
