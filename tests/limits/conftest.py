"""Places with and without control groups, and the three ways to run a command in them."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import subprocess
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hermes_exec
from hermes_exec.terminal.job import prune_jobs, start_job
from hermes_exec.terminal.terminal import Terminal
from hermes_exec_backends.local import LocalBackend
from tests.rigs.bounded import PATIENCE_S, until
from tests.rigs.pythons import PYTHON_3_6

if TYPE_CHECKING:
    from hermes_exec.backend import BackendTraits, Channel, Receiver
    from hermes_exec.result import Result
    from hermes_exec.terminal.limits import Limits
    from hermes_exec.transport.link import Link

Scenario = Callable[[Terminal], Awaitable[None]]

NO_CGROUPS = ("unshare", "-m", "sh", "-c", 'umount -R /sys/fs/cgroup && exec "$@"', "sh")
_NOBODIES = itertools.count(1_000_000 + 1000 * os.getpid())
"""A user for each test: a limit counts all that its user runs anywhere, also what the test before has just ended."""


class Prefixed(LocalBackend):
    """This machine with something between it and the guest."""

    def __init__(self, prefix: Sequence[str] = (), python: str = "") -> None:
        self._prefix = prefix
        self._python = python

    @property
    def traits(self) -> BackendTraits:
        traits = super().traits
        return replace(traits, pythons=(self._python,), same_python=False) if self._python else traits

    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, *, env: Mapping[str, str] | None = None
    ) -> Channel:
        return await super().spawn([*self._prefix, *argv], receiver, env=env)


def works(*argv: str) -> bool:
    return subprocess.run(argv, check=False, capture_output=True).returncode == 0


def place(name: str) -> LocalBackend:
    if name == "python 3.6":
        if not PYTHON_3_6:
            pytest.skip("no Python 3.6 on this machine. Try: HERMES_EXEC_PYTHON36=/path/to/python3.6")
        return Prefixed(python=PYTHON_3_6)
    if name == "no control groups":
        if not works(*NO_CGROUPS, "true"):
            pytest.skip("needs the right to unmount control groups. Try: run the tests as root")
        return Prefixed(NO_CGROUPS)
    if name == "nobody":
        python = "/usr/bin/python3"
        number = str(next(_NOBODIES))
        become = ("setpriv", "--reuid", number, "--regid", number, "--clear-groups", "--")
        if not works(*become, python, "-c", ""):
            pytest.skip("needs the right to become nobody, and /usr/bin/python3. Try: run the tests as root")
        return Prefixed((*NO_CGROUPS, *become), python)
    return LocalBackend()


def run_in(backend: LocalBackend, scenario: Scenario) -> None:
    """Run a scenario in a new terminal that leaves neither process nor folder behind."""

    async def whole() -> None:
        async with asyncio.timeout(PATIENCE_S), hermes_exec.open(backend, audit=False, cwd="/") as terminal:
            link = link_of(terminal)
            await scenario(terminal)
            await prune_jobs(link)
        assert vars(link)["_attempt"].stderr == b""  # a fault in the guest's loop is told there
        await until(lambda: not Path(link.guest["folder"]).exists())

    asyncio.run(whole())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def link_of(terminal: Terminal) -> Link:
    link: Link = vars(terminal)["_context"].require_guest("do that")
    return link


async def run_way(way: str, terminal: Terminal, command: str, limits: Limits, timeout: float = 30) -> Result:
    """Run a command as words, in a session, or as a job."""
    if way == "words":
        return await terminal.run(["bash", "-c", command], limits=limits, timeout=timeout)
    if way == "session":
        return await terminal.run(command, limits=limits, timeout=timeout)
    job = await start_job(link_of(terminal), "local", command, limits=limits, cap_s=timeout)
    return await job.wait()


@pytest.fixture
def in_place() -> Callable[[str, Scenario], None]:
    return lambda name, scenario: run_in(place(name), scenario)


@pytest.fixture(params=["words", "session", "job"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run() -> Callable[..., Awaitable[Result]]:
    return run_way


@pytest.fixture
def link() -> Callable[[Terminal], Link]:
    return link_of


@pytest.fixture
def soon() -> Callable[[Callable[[], object]], Awaitable[None]]:
    return until


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
