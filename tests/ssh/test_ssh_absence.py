"""Connections that end while nobody is there: a person who would have to log in, a client that stands still."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

import hermes_exec
from hermes_exec.testing.place import marker, wait_until
from hermes_exec_backends.ssh import SshBackend, login
from tests.rigs.processes import runs
from tests.rigs.sshd import Sshd, User

if TYPE_CHECKING:
    from collections.abc import Generator

_PAM = "auth required pam_unix.so\naccount required pam_permit.so\nsession required pam_permit.so\n"
_WORD = "not a real passw0rd"
_CLIENT = """
import asyncio, json, os, sys
import hermes_exec
from hermes_exec.errors import OutcomeUnknown
from hermes_exec_backends.ssh import SshBackend
from hermes_exec_backends.profiles.ssh import SshProfile

async def main(profile):
    async with hermes_exec.open(SshBackend(profile), audit=False, lease_s=float(sys.argv[2])) as terminal:
        await terminal.run("kept=here")
        job = await terminal.start("until [ -e go ]; do sleep 0.1; done; echo once >> ran; echo worked")
        wait = f"sleep {os.environ['MARK']} & until [ -e go ]; do sleep 0.1; done; echo $kept"
        running = asyncio.ensure_future(terminal.run(wait))
        await terminal.run(["true"])
        print("started", flush=True)
        try:
            print((await running).stdout_text, end="", flush=True)
        except OutcomeUnknown as error:
            print(error.what, flush=True)
        result = await job.wait()
        print(result.exit_code, (await terminal.run(["cat", "ran"])).stdout_text, end="", flush=True)

asyncio.run(main(SshProfile.model_validate(json.loads(sys.argv[1]))))
"""


class Person(io.StringIO):
    """Somebody at the terminal, or not."""

    there = True

    def isatty(self) -> bool:
        return self.there


@pytest.fixture
def asking() -> Generator[Sshd]:
    """A server that asks a question after the key."""
    settings = "KbdInteractiveAuthentication yes\nAuthenticationMethods publickey,keyboard-interactive"
    with Sshd(User("worker", password=_WORD), settings=settings, pam=_PAM) as sshd:
        yield sshd


def _answer(prompt: str, *, shown: bool) -> str:
    assert prompt
    assert not shown
    return _WORD


async def test_where_only_a_person_can_log_in_again_it_waits_for_one_and_never_tries(
    asking: Sshd, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    person = Person()
    monkeypatch.setattr(sys, "stdin", person)
    monkeypatch.setattr(login, "ask", _answer)
    async with hermes_exec.open(SshBackend(asking.profile()), audit=False) as terminal:
        await terminal.run("kept=here")
        person.there = False
        await asyncio.to_thread(asking.stop)
        await asyncio.to_thread(asking.start)
        with caplog.at_level(logging.WARNING, "hermes_exec.ssh"):
            running = asyncio.ensure_future(terminal.run("echo $kept"))
            await wait_until(lambda: _told(caplog))
        tried = asking.log().count("Postponed keyboard-interactive")
        await asyncio.sleep(2.5)  # some times as long as the pauses between the first tries
        assert asking.log().count("Postponed keyboard-interactive") == tried
        assert not running.done()
        person.there = True
        async with hermes_exec.open(SshBackend(asking.profile()), audit=False):
            assert (await running).stdout == b"here\n"


async def _told(caplog: pytest.LogCaptureFixture) -> bool:
    return any("waiting until a caller opens" in message for message in caplog.messages)


async def test_a_client_that_stood_still_finds_its_command_and_its_job_again() -> None:
    assert await _stood_still(900.0) == b"here\n0 once\n"


async def test_one_that_stood_still_for_longer_than_its_lease_finds_its_job_again() -> None:
    told = b"the connection was down for longer than the lease of 1 s; only jobs kept running\n"
    assert await _stood_still(1.0, for_long=True) == told + b"0 once\n"


async def _stood_still(lease_s: float, *, for_long: bool = False) -> bytes:
    """What a client prints that stood still until the server had hung up, or the guest had ended its shell as well."""
    mark = marker()
    with Sshd(settings="ClientAliveInterval 1\nClientAliveCountMax 1") as sshd:
        profile = sshd.profile(keepalive_s=1.0).model_dump(exclude_unset=True)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _CLIENT, json.dumps(profile, default=str), str(lease_s),
            stdout=asyncio.subprocess.PIPE, env={**os.environ, "MARK": mark},
        )  # fmt: skip
        assert process.stdout is not None
        try:
            assert await process.stdout.readline() == b"started\n"
            os.kill(process.pid, signal.SIGSTOP)
            await wait_until(lambda: _hung_up(sshd))
            if for_long:
                await wait_until(lambda: _ended(mark))
            (sshd.home() / "go").touch()
            await wait_until(lambda: _has_run(sshd))
            os.kill(process.pid, signal.SIGCONT)
            said = await process.stdout.read()
            assert sshd.log().count("Accepted publickey") == 2
            return said
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _hung_up(sshd: Sshd) -> bool:
    return not sshd.talking()


async def _ended(mark: str) -> bool:
    return not runs(mark)


async def _has_run(sshd: Sshd) -> bool:
    return (sshd.home() / "ran").exists()
