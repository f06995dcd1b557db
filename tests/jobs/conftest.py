"""A guest that really runs, of this Python and of the oldest one, whose jobs outlive their links."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hermes_exec.terminal.job import Job, list_jobs, prune_jobs
from hermes_exec.terminal.job_status import JobState
from hermes_exec.transport.link import Link
from hermes_exec_backends.local import LocalBackend
from tests.rigs.bounded import until
from tests.rigs.breadth import thorough
from tests.rigs.pythons import PYTHON_3_6, OtherPython

Scenario = Callable[[Link], Awaitable[None]]
Live = Callable[[Scenario], None]


@pytest.fixture(params=["this python", pytest.param("python 3.6", marks=thorough)])
def backend(request: pytest.FixtureRequest) -> LocalBackend:
    if request.param == "this python":
        return LocalBackend()
    if not PYTHON_3_6:
        pytest.skip("no Python 3.6 on this machine. Try: HERMES_EXEC_PYTHON36=/path/to/python3.6")
    return OtherPython(PYTHON_3_6)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the records, of this test alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "hermes_exec" / "guests"


async def opened(backend: LocalBackend) -> Link:
    link = Link(backend, env={"MARK": "of the client"}, cwd=None)
    await link.open()
    return link


async def end_all(link: Link) -> None:
    """Leave no job behind."""
    for status in await list_jobs(link):
        if status.state is not JobState.ENDED:
            await Job(link, status.id).kill(0.2, max_output=0)
    await prune_jobs(link)


def run_bounded(work: Awaitable[None]) -> None:
    """Run a whole test."""

    async def whole() -> None:
        async with asyncio.timeout(300):
            await work

    asyncio.run(whole())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # a detached guest is meant to go on running
        gc.collect()


@pytest.fixture
def bounded() -> Callable[[Awaitable[None]], None]:
    return run_bounded


@pytest.fixture
def live(backend: LocalBackend) -> Live:
    """Run a scenario with a link to a new guest; end its jobs and close the link."""

    def run(scenario: Scenario) -> None:
        async def whole() -> None:
            link = await opened(backend)
            try:
                await scenario(link)
            finally:
                await end_all(link)
                await link.close()
            assert vars(link)["_attempt"].stderr == b""  # a fault in the guest's loop is told there
            await until(lambda: not Path(link.guest["folder"]).exists())

        run_bounded(whole())

    return run


def names_in(folder: str | Path) -> list[str] | None:
    """The names in a folder; None when it is not there."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(entry.name for entry in Path(folder).iterdir())
    return None


@pytest.fixture
def soon() -> Callable[[Callable[[], object]], Awaitable[None]]:
    return until
