"""Everything at once, cut and cancelled at random moments: nothing hangs, nothing is lost, and nothing is left.

A seed chooses what is asked for and when it is disturbed; what the loops and the kernel make of it differs a little.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import HermesError
from hermes_exec.job import prune_jobs
from hermes_exec.jobstatus import JobState
from hermes_exec.testing.place import link, living, marker, until
from tests.rigs.breadth import thorough

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec.session import Session
    from hermes_exec.terminal import Terminal
    from hermes_exec.testing import Place
    from tests.faults.rig import CuttingBackend

ROUNDS = 8


class Storm:
    """What is asked for of one terminal, and what disturbs it."""

    def __init__(self, backend: CuttingBackend, terminal: Terminal, session: Session, folder: Path, seed: int) -> None:
        self.mark = marker()
        self._backend = backend
        self._terminal = terminal
        self._session = session
        self._folder = folder
        self._chance = random.Random(seed)

    async def program(self) -> None:
        end = f"sleep {self.mark}" if self._chance.random() < 0.4 else "echo on"
        await self._terminal.run(["sh", "-c", f"echo in; {end}"])

    async def text(self) -> None:
        await self._terminal.run(f"(exit 3); sleep {self._chance.random() / 20}")

    async def session(self) -> None:
        await self._session.run("true")

    async def input(self) -> None:
        data = bytes(self._chance.choice([10, 100_000, 5_000_000]))
        assert (await self._terminal.run(["cat"], stdin=data, max_output=len(data))).stdout == data

    async def stream(self) -> None:
        async with self._terminal.stream("seq 1 200000") as stream:
            async for _ in stream:
                if self._chance.random() < 0.3:
                    break

    async def job(self) -> None:
        job = await self._terminal.start("echo done")
        assert (await job.wait()).stdout == b"done\n"

    async def file(self) -> None:
        path, data = self._folder / f"file{self._chance.randrange(5)}", os.urandom(300_000)
        await self._terminal.write(path, data)
        assert len(await self._terminal.read(path)) == len(data)

    async def folder(self) -> None:
        tree, there = self._folder / "tree", self._folder / f"there{self._chance.randrange(3)}"
        match self._chance.randrange(3):
            case 0:
                await self._terminal.upload(tree, there)
            case 1:
                await self._terminal.download(tree, there)
            case _:
                await self._terminal.sync(tree, there)

    async def round(self) -> None:
        """Ask for some of these at once, disturb them, and wait until all have ended."""
        kinds = [self.program, self.text, self.session, self.input, self.stream, self.job, self.file, self.folder]
        tasks = [asyncio.ensure_future(self._chance.choice(kinds)()) for _ in range(self._chance.randrange(1, 12))]
        left = list(tasks)
        self._chance.shuffle(left)
        for _ in range(self._chance.randrange(6)):
            await asyncio.sleep(self._chance.choice([0, 0.001, self._chance.random() / 30]))
            self._disturb(left)
        self._backend.gate.set()
        for task in left:  # each once: who is cancelled again while he ends something leaves it to the place
            task.cancel()
        _, hanging = await asyncio.wait(tasks, timeout=40)
        assert not hanging
        for task in tasks:
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, HermesError):
                raise error

    def _disturb(self, left: list[asyncio.Task[None]]) -> None:
        what = self._chance.choice(["cut", "cut for a while", "there again", "cancel", "cancel"])
        if what == "there again":
            self._backend.gate.set()
        elif what == "cancel":
            if left:
                left.pop().cancel()
        else:
            if what == "cut for a while":
                self._backend.gate.clear()
            link(self._terminal).cut()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=thorough) for seed in range(3, 13))])
def test_after_any_storm_the_terminal_is_as_good_as_new(
    place: Place, backend: CuttingBackend, tmp_path: Path, seed: int
) -> None:
    (tmp_path / "tree").mkdir()
    for number in range(20):
        (tmp_path / "tree" / f"file{number}").write_bytes(os.urandom(number * 9000))

    async def storms() -> None:
        async with place.fresh() as terminal, await terminal.session() as session:
            await session.run("cd /usr; kept=here")
            storm = Storm(backend, terminal, session, tmp_path, seed)
            for _ in range(ROUNDS):
                await storm.round()
                assert (await session.run("echo $kept $PWD", timeout=30)).stdout == b"here /usr\n"
                await until(lambda: _nothing_runs(terminal, storm.mark), 30)
                assert len(vars(link(terminal))["_calls"]) <= 3  # the sessions themselves
            await prune_jobs(link(terminal))

    place.run(storms(), 200)
    assert not list(tmp_path.rglob(".hx-*"))


async def _nothing_runs(terminal: Terminal, mark: str) -> bool:
    jobs = await terminal.jobs()
    return not await living(terminal, mark) and all(job.state is JobState.ENDED for job in jobs)
