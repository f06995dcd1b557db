"""An orchestrator with a record of this test alone, and a local place that can be held back or broken."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import PlaceUnavailable
from hermes_exec_backends.local import LocalBackend
from tests.rigs.bounded import until
from tests.rigs.processes import alive

if TYPE_CHECKING:
    from hermes_exec.backend import Channel, Receiver
    from hermes_exec.pool.orchestrator import Orchestrator


class GatedBackend(LocalBackend):
    """This machine, where nothing is opened while ``gate`` is not set, or at all while ``broken``."""

    gate: asyncio.Event
    broken = False
    opened = 0
    removed = 0
    """How many places would be gone if they had been created for their terminals."""

    async def suspend(self) -> None:
        """Left to the test."""

    async def resume(self) -> None:
        """Left to the test."""

    async def open(self) -> None:
        type(self).opened += 1
        await type(self).gate.wait()
        if type(self).broken:
            raise PlaceUnavailable("it is broken today")

    async def close(self, *, keep: bool = False) -> None:
        type(self).removed += not keep
        await super().close(keep=keep)

    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, *, env: Mapping[str, str] | None = None
    ) -> Channel:
        await type(self).gate.wait()
        return await super().spawn(argv, receiver, env=env)


@pytest.fixture
def gated() -> type[GatedBackend]:
    """A class of backends of this test alone."""

    class Gated(GatedBackend):
        gate = asyncio.Event()

    Gated.gate.set()
    return Gated


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the records, of this test alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "hermes_exec" / "orchestrators"


def run_bounded(work: Awaitable[None], limit_s: float = 120.0) -> None:
    async def whole() -> None:
        async with asyncio.timeout(limit_s):
            await work

    asyncio.run(whole())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # a guest that has jobs is meant to go on running
        gc.collect()


@pytest.fixture
def bounded() -> Callable[..., None]:
    """Run a whole test within a limit of time."""
    return run_bounded


@pytest.fixture
def soon() -> Callable[..., Awaitable[None]]:
    """Wait until something is so that no event tells."""
    return until


async def filled(orchestrator: Orchestrator, profile: str, count: int) -> None:
    await until(lambda: orchestrator.status()[profile].ready == count)


@pytest.fixture
def ready() -> Callable[..., Awaitable[None]]:
    """Wait until so many terminals of a pool are ready."""
    return filled


ORCHESTRATOR = """
import asyncio, sys
from hermes_exec import Orchestrator, Pool
from tests.faults.rig import guest_pid

async def main():
    folder, mark, target = sys.argv[1:]
    async with Orchestrator({"p": Pool(target, warm=1, lease_s=60, audit=False)}) as orchestrator:
        busy = await orchestrator.lease("p", key="alice")
        asyncio.ensure_future(busy.terminal.run("echo ran >> %s/trace; sleep %s" % (folder, mark)))
        kept = await orchestrator.lease("p", key="bob")
        command = "for n in $(seq 20); do echo $n; sleep 0.1; done; until [ -e %s/go ]; do sleep 0.1; done; echo end"
        await kept.terminal.start(command % folder, name="count")
        asyncio.ensure_future(kept.terminal.run("echo ran >> %s/trace; sleep %s" % (folder, mark)))
        pids = [await guest_pid(busy.terminal), await guest_pid(kept.terminal)]
        await asyncio.sleep(0.5)
        print(*pids, flush=True)
        await asyncio.sleep(1000)

asyncio.run(main())
"""


@contextmanager
def one_that_was_killed(folder: Path, mark: str = "600", target: str = "local") -> Generator[list[int]]:
    """One that was killed, and the pids of its two guests: alice's, and bob's that has a job."""
    with subprocess.Popen(
        [sys.executable, "-c", ORCHESTRATOR, str(folder), mark, target],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        process.kill()
        process.wait()
        assert len(pids) == 2
        try:
            yield pids
        finally:
            for pid in pids:
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def killed() -> Callable[..., AbstractContextManager[list[int]]]:
    """``with killed(tmp_path) as (alice, bob)``: an orchestrator that was, and the pids of its guests."""
    return one_that_was_killed
