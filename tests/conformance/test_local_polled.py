"""This machine with every instance of inotify used up: live shells are watched by polling."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

import hermes_exec
from hermes_exec.testing.input import InputSuite
from hermes_exec.testing.machinery import MachinerySuite
from hermes_exec.testing.sessions import SessionsSuite
from hermes_exec.testing.state import StateSuite
from hermes_exec_backends.local import LocalBackend
from tests.rigs.breadth import thorough

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from hermes_exec.backend import Backend, Channel, Receiver
    from hermes_exec.terminal.session import Session

FEW = ("unshare", "-U", "-r", "sh", "-c", 'echo "$0" >/proc/sys/user/max_inotify_instances && exec "$@"')


class Few(LocalBackend):
    """This machine with so many instances of inotify left."""

    def __init__(self, left: int) -> None:
        self._left = left

    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, *, env: Mapping[str, str] | None = None
    ) -> Channel:
        return await super().spawn([*FEW, str(self._left), *argv], receiver, env=env)


@pytest.fixture(scope="module", autouse=True)
def possible(require: Callable[..., str]) -> None:
    """Skip where nobody may have limits of their own."""
    require("unshare", "to have a limit of its own for inotify")
    if subprocess.run([*FEW, "9", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this kernel lets nobody have limits of their own")


@pytest.mark.parametrize("left", [0, 1])
def test_a_session_without_inotify_works_and_says_so_once(left: int) -> None:
    async def scenario() -> None:
        async with hermes_exec.open(Few(left), audit=False) as terminal:
            first = await terminal.run("cd /tmp; x=5; echo hi")
            assert (first.stdout, first.ok) == (b"hi\n", True)
            assert "fs.inotify.max_user_instances" in first.note
            second = await terminal.run("echo $PWD $x; (exit 3)")
            assert (second.stdout, second.exit_code, second.note) == (b"/tmp 5\n", 3, "")

    asyncio.run(scenario())


def test_the_end_of_each_command_is_looked_for_at_once() -> None:
    """And not only when idle sessions are looked at, four times a second."""

    async def scenario() -> float:
        async with hermes_exec.open(Few(0), audit=False) as terminal, await terminal.session() as session:
            await session.run("true")
            return statistics.median([await pause(session) for _ in range(15)])

    async def pause(session: Session) -> float:
        await asyncio.sleep(0.02)  # so that it is idle
        began = time.monotonic()
        await session.run("true")
        return time.monotonic() - began

    assert asyncio.run(scenario()) < 0.1


def test_two_instances_are_enough_for_all_sessions_of_a_guest() -> None:
    async def scenario() -> None:
        async with hermes_exec.open(Few(2), audit=False) as terminal:
            for _ in range(3):
                async with await terminal.session() as session:
                    assert (await session.run("true")).note == ""

    asyncio.run(scenario())


def test_doctor_says_so() -> None:
    text = "import asyncio\nfrom hermes_exec_backends.local import LocalBackend as L\nprint(asyncio.run(L.doctor()))"
    done = subprocess.run([*FEW, "1", sys.executable, "-c", text], check=True, capture_output=True, text=True)
    assert "name='inotify', status='warning'" in done.stdout
    assert "max_user_instances" in done.stdout


def test_doctor_of_a_place_says_so_of_its_sessions(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "hermes_exec", "doctor", "local", "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run([*FEW, "1", *words], check=True, capture_output=True, text=True, env=environment)
    (found,) = (check for kind in json.loads(done.stdout) for check in kind["checks"] if check["name"] == "session")
    assert (found["status"], "max_user_instances" in found["detail"]) == ("warning", True)
    assert found["remedy"]


@thorough
class TestLocalPolled(SessionsSuite, StateSuite, MachinerySuite, InputSuite):
    @pytest.fixture
    def backend(self) -> Backend:
        return Few(0)
