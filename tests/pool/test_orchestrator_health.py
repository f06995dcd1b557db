"""A terminal that is ill is replaced; what ran on it is told unknown, and never run again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_exec import Closed, Orchestrator, OutcomeUnknown, Pool, Terminal
from hermes_exec.pool.pooled_terminal import Health
from hermes_exec.terminal.job import Job
from hermes_exec.terminal.job_status import JobState
from hermes_exec.testing.place import link, marker
from hermes_exec.transport.link import Link
from hermes_exec_backends.local import LocalBackend
from tests.faults.rig import guest_pid
from tests.rigs.bounded import until
from tests.rigs.processes import alive, runs

Bounded = Callable[..., None]
Ready = Callable[..., Awaitable[None]]
Soon = Callable[..., Awaitable[None]]


def pool_of(gated: Any) -> dict[str, Pool]:
    return {"p": Pool(gated, warm=1, audit=False)}


def ready_one(orchestrator: Orchestrator) -> Terminal:
    """The terminal that would be handed out next."""
    (place,) = vars(orchestrator)["_places"].values()
    terminal: Terminal = place.idle_pools["p"].ready[0].terminal
    return terminal


def test_one_whose_guest_was_killed_is_not_handed_out(gated: Any, bounded: Bounded, ready: Ready, soon: Soon) -> None:
    async def scenario() -> None:
        async with Orchestrator(pool_of(gated)) as orchestrator:
            await ready(orchestrator, "p", 1)
            waiting = ready_one(orchestrator)
            os.kill(await guest_pid(waiting), signal.SIGKILL)
            await soon(lambda: not link(waiting).connected)
            async with orchestrator.terminal("p") as terminal:
                assert (await terminal.run("echo well")).stdout == b"well\n"

    bounded(scenario())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["dead", "hanging"])
def test_one_that_falls_ill_while_it_waits_is_replaced(
    gated: Any, bounded: Bounded, ready: Ready, soon: Soon, number: signal.Signals
) -> None:
    async def scenario() -> None:
        async with Orchestrator(pool_of(gated), check_every_s=0.1, check_limit_s=1.0) as orchestrator:
            await ready(orchestrator, "p", 1)
            ill = ready_one(orchestrator)
            pid = await guest_pid(ill)
            os.kill(pid, number)
            try:
                await soon(lambda: gated.opened == 2)
                await ready(orchestrator, "p", 1)
                assert ready_one(orchestrator) is not ill
            finally:
                if alive(pid):
                    os.kill(pid, signal.SIGCONT)
            await soon(lambda: not alive(pid))

    bounded(scenario())


def test_what_ran_on_one_that_hangs_is_told_unknown_and_runs_once(
    gated: Any, bounded: Bounded, soon: Soon, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with Orchestrator(pool_of(gated), check_every_s=0.1, check_limit_s=1.0) as orchestrator:
            lease = await orchestrator.lease("p")
            running = asyncio.ensure_future(
                lease.terminal.run(["sh", "-c", f"echo ran >> {tmp_path}/trace; sleep 600"])
            )
            await soon((tmp_path / "trace").exists)
            pid = await guest_pid(lease.terminal)
            os.kill(pid, signal.SIGSTOP)
            try:
                with pytest.raises(OutcomeUnknown, match="found unhealthy"):
                    await running
                assert lease.over == "the terminal was found unhealthy"
                with pytest.raises(Closed):
                    await lease.terminal.run(["true"])
                async with orchestrator.terminal("p") as other:
                    assert (await other.run(["true"])).ok
            finally:
                os.kill(pid, signal.SIGCONT)
            await soon(lambda: not alive(pid))
            assert (tmp_path / "trace").read_text() == "ran\n"

    bounded(scenario())


@pytest.mark.parametrize("jobs", [True, False], ids=["with a job", "without"])
def test_the_place_of_one_that_hangs_is_left_to_its_jobs(
    gated: Any, bounded: Bounded, soon: Soon, caplog: pytest.LogCaptureFixture, jobs: bool
) -> None:
    async def scenario() -> None:
        async with Orchestrator({"p": Pool(gated, audit=False)}, check_every_s=0.1, check_limit_s=1.0) as orchestrator:
            lease = await orchestrator.lease("p")
            job = await lease.terminal.start(["sleep", "1000"]) if jobs else None
            guest, pid = link(lease.terminal).identity, await guest_pid(lease.terminal)
            os.kill(pid, signal.SIGSTOP)
            try:
                await soon(lambda: lease.over == "the terminal was found unhealthy")
                await orchestrator.drain(60)
            finally:
                os.kill(pid, signal.SIGCONT)
        assert gated.removed == (0 if jobs else 1)
        assert ("its jobs are left to themselves" in caplog.text) == jobs
        if job is not None:
            again = Link(LocalBackend(), env={}, cwd=None)
            await again.attach(guest, str(guest["interpreter"]))
            same = Job(again, job.id)
            assert (await same.status()).state is JobState.RUNNING
            await same.kill(0.1)
            await same.prune()
            await again.close()

    bounded(scenario())


def test_what_ran_on_one_that_died_is_told_unknown(gated: Any, bounded: Bounded, soon: Soon) -> None:
    async def scenario() -> None:
        async with Orchestrator(pool_of(gated), check_every_s=0.1) as orchestrator:
            lease = await orchestrator.lease("p")
            pid = await guest_pid(lease.terminal)
            running = asyncio.ensure_future(lease.terminal.run(["sleep", "600"]))
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(OutcomeUnknown):
                await running
            await soon(lambda: lease.over == "the terminal was found unhealthy")

    bounded(scenario())


def test_a_busy_terminal_is_not_taken_for_ill(gated: Any, bounded: Bounded) -> None:
    async def scenario() -> None:
        async with Orchestrator(pool_of(gated), check_every_s=0.05) as orchestrator, orchestrator.terminal("p") as busy:
            results = await asyncio.gather(*(busy.run(["sh", "-c", "sleep 1; seq 100000"]) for _ in range(8)))
            assert all(result.ok for result in results)

    bounded(scenario())


def test_one_that_its_holder_has_suspended_is_not_taken_for_ill(gated: Any, bounded: Bounded) -> None:
    async def scenario() -> None:
        async with Orchestrator(pool_of(gated), check_every_s=0.05, check_limit_s=0.2) as orchestrator:
            lease = await orchestrator.lease("p")
            pid = await guest_pid(lease.terminal)
            await lease.terminal.suspend()
            os.kill(pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(1.5)  # several looks, each of which would find it ill
                assert not lease.over
            finally:
                os.kill(pid, signal.SIGCONT)

    bounded(scenario())


def test_one_that_was_away_for_longer_than_its_lease_is_not_ill(gated: Any, bounded: Bounded) -> None:
    async def scenario() -> None:
        async with Orchestrator({"p": Pool(gated, audit=False, lease_s=0.3)}, check_every_s=1000) as orchestrator:
            lease = await orchestrator.lease("p")
            terminal, mark = lease.terminal, marker()
            job = await terminal.start(["sleep", "1000"])
            await terminal.run(f"sleep {mark} >/dev/null 2>&1 &")
            await until(lambda: runs(mark))
            gated.gate.clear()
            looking = asyncio.ensure_future(lease.member.check_health(60))
            await asyncio.sleep(0)  # its question is on its way
            link(terminal).break_connection()
            await until(lambda: not runs(mark))
            gated.gate.set()
            assert await looking is Health.HEALTHY
            assert (await terminal.run(["echo", "on"])).stdout == b"on\n"
            await job.kill(0.1)
            await job.prune()

    bounded(scenario())
