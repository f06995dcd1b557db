"""Everything at once, disturbed and cancelled at random moments: what is asked for, and what has to be true after it.

A seed chooses what is asked for and when it is disturbed; what the loops and the kernel make of it differs a little.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError
from hermes_exec.terminal.job import prune_jobs
from hermes_exec.terminal.job_status import JobState
from hermes_exec.testing.place import count_living, link, marker, wait_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from hermes_exec.result import Result
    from hermes_exec.terminal.session import Session
    from hermes_exec.terminal.terminal import Terminal

_HANGS_S = 60
LARGE = 9_000_000
"""Bytes of a file that a vendor's own way moves, where there is one."""


class Storm:
    """What is asked for of one terminal, and what disturbs it.

    ``disturb`` does something to the place with the chances it is given; ``calm`` undoes what lasts of that.
    ``here`` is an empty folder of this machine, ``there`` one of the place.
    """

    def __init__(
        self,
        terminal: Terminal,
        session: Session,
        here: Path,
        there: str,
        seed: int,
        disturb: Callable[[random.Random], Awaitable[object]],
        calm: Callable[[], object],
    ) -> None:
        self._mark = marker()
        self._terminal = terminal
        self._session = session
        self._here = here
        self._there = there
        self._chance = random.Random(seed)
        self._disturb = disturb
        self._calm = calm
        self._asked = 0
        self._ran: list[str] = []
        self._large = os.urandom(LARGE)
        (here / "tree").mkdir()
        for number in range(20):
            (here / "tree" / f"file{number}").write_bytes(os.urandom(number * 9000))

    async def weather(self, rounds: int) -> None:
        """Disturb so many rounds, after each of which the terminal has to be as good as new."""
        await self._session.run(f"cd /usr; kept=here; touch {self._there}/ran")
        for _ in range(rounds):
            await self._round()
            assert (await self._session.run("echo $kept $PWD", timeout=30)).stdout == b"here /usr\n"
            await wait_until(self._nothing_runs, 30)
            await self._each_ran_once()
            assert len(vars(link(self._terminal))["_calls"]) <= 3  # the sessions themselves
        await prune_jobs(link(self._terminal))

    async def _round(self) -> None:
        """Ask for some things at once, disturb them, and wait until all have ended."""
        kinds = [
            *(self._program, self._text, self._in_session, self._job, self._endless),
            *(self._input, self._stream, self._file, self._large_file, self._folder),
        ]
        chosen = [self._chance.choice(kinds) for _ in range(self._chance.randrange(1, 12))]
        tasks = [asyncio.ensure_future(each()) for each in chosen]
        left = list(range(len(tasks)))
        self._chance.shuffle(left)
        for _ in range(self._chance.randrange(6)):
            await asyncio.sleep(self._chance.choice([0, 0.001, self._chance.random() / 30]))
            if left and self._chance.random() < 0.4:
                tasks[left.pop()].cancel()
            else:
                await self._disturb(self._chance)
        self._calm()
        for number in left:  # each once: who is cancelled again while he ends something leaves it to the place
            if chosen[number] == self._endless or self._chance.random() < 0.5:
                tasks[number].cancel()
        _, hanging = await asyncio.wait(tasks, timeout=_HANGS_S)
        assert not hanging
        for task in tasks:
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, HermesError):
                raise error

    async def _nothing_runs(self) -> bool:
        jobs = await self._terminal.jobs()
        return not await count_living(self._terminal, self._mark) and all(job.state is JobState.ENDED for job in jobs)

    async def _each_ran_once(self) -> None:
        """Of what tells that it ran: nothing twice, and everything that was said to have run."""
        told = Counter((await self._terminal.run(["cat", f"{self._there}/ran"])).stdout.decode().split())
        assert not [line for line, count in told.items() if count > 1]
        assert not [line for line in self._ran if line not in told]

    async def _telling(self, run: Callable[[str], Awaitable[Result]]) -> None:
        self._asked += 1
        line = f"{self._asked}-{self._mark}"
        result = await run(f"echo {line} >> {self._there}/ran")
        assert result.exit_code == 0
        self._ran.append(line)

    async def _program(self) -> None:
        await self._telling(lambda text: self._terminal.run(["sh", "-c", text]))

    async def _text(self) -> None:
        await self._telling(lambda text: self._terminal.run(f"{text}; sleep {self._chance.random() / 20}"))

    async def _in_session(self) -> None:
        await self._telling(self._session.run)

    async def _job(self) -> None:
        async def run(text: str) -> Result:
            job = await self._terminal.start(text)
            return await job.wait()

        await self._telling(run)

    async def _endless(self) -> None:
        await self._terminal.run(["sh", "-c", f"echo in; sleep {self._mark}"])

    async def _input(self) -> None:
        data = os.urandom(self._chance.choice([10, 100_000, 5_000_000]))
        assert (await self._terminal.run(["cat"], stdin=data, max_output=len(data))).stdout == data

    async def _stream(self) -> None:
        async with self._terminal.stream("seq 1 200000") as stream:
            async for _ in stream:
                if self._chance.random() < 0.3:
                    break

    async def _file(self) -> None:
        path, data = f"{self._there}/file{self._chance.randrange(5)}", os.urandom(300_000)
        await self._terminal.write(path, data)
        assert len(await self._terminal.read(path)) == len(data)

    async def _large_file(self) -> None:
        path, here = f"{self._there}/large{self._chance.randrange(2)}", self._here / f"large{self._chance.randrange(2)}"
        await self._terminal.write(path, self._large)
        await self._terminal.download(path, here)
        assert here.read_bytes() == self._large

    async def _folder(self) -> None:
        tree, there = self._here / "tree", f"{self._there}/tree{self._chance.randrange(3)}"
        match self._chance.randrange(3):
            case 0:
                await self._terminal.upload(tree, there)
            case 1:
                await self._terminal.download(there, tree)
            case _:
                await self._terminal.sync(tree, there)
