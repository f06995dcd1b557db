"""A client that was away for longer than its lease, such as a laptop that slept: jobs go on, the rest was ended."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.errors import Closed, OutcomeUnknown, PlaceUnavailable
from hermes_exec.terminal.job import Job
from hermes_exec.testing.place import link, marker
from hermes_exec.transport.link import Link
from hermes_exec_backends.local import LocalBackend
from tests.rigs.bounded import until, within
from tests.rigs.processes import runs

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from pathlib import Path

    from hermes_exec.backend import Channel, Receiver
    from hermes_exec.terminal.terminal import Terminal

_LEASE_S = 0.3
run = within(90)


class Asleep(LocalBackend):
    """A place to which the way takes until ``awake``, or is ``gone``; tells how it was let go of."""

    def __init__(self) -> None:
        super().__init__()
        self.awake = asyncio.Event()
        self.awake.set()
        self.gone = False
        self.parted = ""

    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, *, env: Mapping[str, str] | None = None
    ) -> Channel:
        await self.awake.wait()
        if self.gone:
            raise PlaceUnavailable("no way there")
        return await super().spawn(argv, receiver, env=env)

    async def close(self, *, keep: bool = False) -> None:
        self.parted = self.parted or "closed"
        await super().close(keep=keep)

    async def release(self) -> None:
        self.parted = self.parted or "released"
        await self.close(keep=True)


@contextlib.asynccontextmanager
async def opened(backend: Asleep) -> AsyncGenerator[Terminal]:
    async with hermes_exec.open(backend, audit=False, lease_s=_LEASE_S, carrier="guest") as terminal:
        yield terminal


async def sleep_on(terminal: Terminal, backend: Asleep, *, broken: bool = False) -> None:
    """Lose the connection, and have none again until the guest has ended what was the client's.

    With ``broken`` there is one before that breaks when the guest has answered, and before that is known here.
    """
    mark = marker()
    await terminal.run(f"sleep {mark} >/dev/null 2>&1 &")
    await until(lambda: runs(mark))
    backend.awake.clear()
    link(terminal).break_connection()
    await until(lambda: not runs(mark))
    if broken:
        known = link(terminal)
        first = Link(LocalBackend(), env={}, cwd=None)
        await first.attach(known.identity, str(known.identity["interpreter"]), known.client)
        first.detach()
    backend.awake.set()


def test_who_waits_for_a_job_gets_its_result(tmp_path: Path) -> None:
    async def work() -> None:
        backend = Asleep()
        async with opened(backend) as terminal:
            job = await terminal.start(f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo worked; exit 3")
            waiting = asyncio.ensure_future(job.wait())
            await sleep_on(terminal, backend)
            (tmp_path / "go").touch()
            result = await waiting
            assert (result.stdout, result.exit_code) == (b"worked\n", 3)
            await job.prune()

    run(work())


@pytest.mark.parametrize("stream", ["both", "stdout"])
def test_who_follows_a_log_misses_and_repeats_nothing(tmp_path: Path, stream: str) -> None:
    async def work() -> None:
        backend = Asleep()
        async with opened(backend) as terminal:
            text = f"echo one; until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo two"
            job = await terminal.start(["sh", "-c", text])
            events = job.logs(follow=True, stream=stream)  # type: ignore[arg-type]  # one of its words
            assert (await anext(events)).data == b"one\n"
            await sleep_on(terminal, backend)
            (tmp_path / "go").touch()
            assert [event.data async for event in events] == [b"two\n"]
            await job.prune()

    run(work())


@pytest.mark.parametrize("broken", [False, True], ids=["at once", "at the second try"])
def test_what_ran_but_jobs_is_told_unknown_and_never_run_again(tmp_path: Path, broken: bool) -> None:
    async def work() -> None:
        backend = Asleep()
        async with opened(backend) as terminal:
            job = await terminal.start(["sleep", "1000"])
            text = f"echo once >>{tmp_path}/count; sleep 1000"
            shell = await terminal.session()
            lost = [asyncio.ensure_future(each) for each in (shell.run(text), terminal.run(["sh", "-c", text]))]
            await until(lambda: (tmp_path / "count").exists() and (tmp_path / "count").read_text() == "once\n" * 2)
            await sleep_on(terminal, backend, broken=broken)
            for each in lost:
                with pytest.raises(OutcomeUnknown, match=r"longer than the lease of 0\.3 s"):
                    await each
            assert (await terminal.run(["echo", "on"])).stdout == b"on\n"
            assert (tmp_path / "count").read_text() == "once\n" * 2
            await job.kill(0.1)
            await job.prune()

    run(work())


def test_a_shell_that_was_ended_says_so_and_another_can_be_opened() -> None:
    async def work() -> None:
        backend = Asleep()
        async with opened(backend) as terminal:
            job = await terminal.start(["sleep", "1000"])
            await terminal.run("cd /usr")
            await sleep_on(terminal, backend)
            with pytest.raises(Closed, match="its lease was over"):
                await terminal.run("pwd")  # a new shell would be in another folder
            async with await terminal.session() as shell:
                assert (await shell.run("echo on")).stdout == b"on\n"
            await job.kill(0.1)
            await job.prune()

    run(work())


async def end_job(backend: LocalBackend, identity: dict[str, Any], job: Job) -> None:
    """End a job that was left, and with it its guest."""
    again = Link(backend, env={}, cwd=None)
    await again.attach(identity, str(identity["interpreter"]))
    await Job(again, job.id).kill(0.1)
    await Job(again, job.id).prune()
    await again.close()


def test_closing_leaves_the_place_to_its_jobs() -> None:
    async def work() -> str:
        backend, mark = Asleep(), marker()
        async with opened(backend) as terminal:
            job = await terminal.start(["sleep", mark])
            await sleep_on(terminal, backend)
            identity = link(terminal).identity
        assert runs(mark)
        await end_job(LocalBackend(), identity, job)
        return backend.parted

    assert run(work()) == "released"


@pytest.mark.parametrize(("jobs", "parted"), [(True, "released"), (False, "closed")])
def test_a_place_that_stays_out_of_reach_is_left_to_the_jobs_that_it_may_have(jobs: bool, parted: str) -> None:
    async def work() -> str:
        backend = Asleep()
        async with opened(backend) as terminal:
            identity, job = link(terminal).identity, await terminal.start(["sleep", "1000"]) if jobs else None
            backend.gone = True
            link(terminal).break_connection()
            with pytest.raises(OutcomeUnknown, match="no way there"):
                await terminal.run(["true"])
        if job is not None:
            await end_job(LocalBackend(), identity, job)
        return backend.parted

    assert run(work()) == parted
