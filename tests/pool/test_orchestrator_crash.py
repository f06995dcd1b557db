"""An orchestrator is killed: the next one attaches to its jobs, ends the rest, and touches nothing of the living."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path

import hermes_exec
from hermes_exec import Orchestrator, Pool, Terminal
from hermes_exec.pool.recovery import Fate
from hermes_exec.terminal.guest_records import read_records
from hermes_exec.terminal.job import list_jobs, prune_jobs
from hermes_exec.terminal.job_status import JobState
from hermes_exec.testing.place import count_living, link, marker
from hermes_exec.transport.link import Link
from hermes_exec_backends.local import LocalBackend
from tests.faults.rig import guest_pid
from tests.rigs.breadth import leave_out
from tests.rigs.processes import alive

leave_out("takes long")

Bounded = Callable[..., None]
Soon = Callable[..., Awaitable[None]]
Killed = Callable[..., AbstractContextManager[list[int]]]


def lines(path: Path) -> list[str]:
    return path.read_text().split()


def test_the_next_one_attaches_to_what_has_jobs_and_ends_the_rest(
    tmp_path: Path, killed: Killed, bounded: Bounded, soon: Soon, state: Path
) -> None:
    async def scenario(pids: list[int]) -> None:
        assert all(alive(pid) for pid in pids)
        async with Orchestrator({"p": Pool(LocalBackend, env={"MARK": "today"}, audit=False)}) as orchestrator:
            found = {each.key: each for each in orchestrator.recovered}
            assert found["alice"].fate is Fate.REAPED
            assert found[""].fate is Fate.REAPED  # the one that waited ready
            bob = found["bob"]
            assert (bob.fate, bob.profile, bob.target) == (Fate.ATTACHED, "p", "local")
            await soon(lambda: not alive(pids[0]))
            assert bob.lease is not None
            async with bob.lease as lease:
                assert await guest_pid(lease.terminal) == pids[1]
                assert (await lease.terminal.run("echo $MARK")).stdout == b"today\n"
                job = await lease.terminal.job(bob.jobs[0].id)
                (tmp_path / "go").touch()
                result = await job.wait()
                assert lines_of(result.stdout) == [*map(str, range(1, 21)), "end"]
                await job.prune()
            await soon(lambda: not alive(pids[1]))
        assert lines(tmp_path / "trace") == ["ran", "ran"]  # nothing ran again
        assert list(state.iterdir()) == []

    with killed(tmp_path) as pids:
        bounded(scenario(pids))


def lines_of(data: bytes) -> list[str]:
    return data.decode().split()


def test_what_the_dead_one_ran_beside_jobs_is_ended(tmp_path: Path, killed: Killed, bounded: Bounded) -> None:
    mark = marker()

    async def scenario() -> None:
        async with hermes_exec.open("local", audit=False) as terminal:
            assert await count_living(terminal, mark) == 2
            async with Orchestrator() as orchestrator:
                assert await count_living(terminal, mark) == 0
                (bob,) = [each for each in orchestrator.recovered if each.key == "bob"]
                assert bob.lease is not None
                (job,) = await bob.lease.terminal.jobs()
                assert job.state is JobState.RUNNING
                await end_jobs(bob.lease.terminal)

    with killed(tmp_path, mark):
        bounded(scenario())


async def end_jobs(terminal: Terminal) -> None:
    """Leave no job behind."""
    for status in await terminal.jobs():
        await (await terminal.job(status.id)).kill(0.2)
    await prune_jobs(link(terminal))


def test_a_start_that_reaps_leaves_jobs_to_those_who_look_for_jobs(
    tmp_path: Path, killed: Killed, bounded: Bounded, soon: Soon, state: Path
) -> None:
    async def scenario(pids: list[int]) -> None:
        async with Orchestrator(recover="reap") as orchestrator:
            fates = {each.key: each.fate for each in orchestrator.recovered}
            assert fates == {"alice": Fate.REAPED, "bob": Fate.LEFT, "": Fate.REAPED}
        await soon(lambda: not alive(pids[0]))
        assert list(state.iterdir()) == []
        (record,) = read_records()
        again = Link(LocalBackend(), env={}, cwd=None)
        await again.attach(record.identity, record.interpreter)
        assert [status.name for status in await list_jobs(again)] == ["count"]
        (tmp_path / "go").touch()
        await again.call("job_wait", {"job": (await list_jobs(again))[0].id}).result()
        await prune_jobs(again)
        await again.close()
        await soon(lambda: not alive(pids[1]))

    with killed(tmp_path) as pids:
        bounded(scenario(pids))


def test_a_start_that_leaves_everything_touches_nothing(
    tmp_path: Path, killed: Killed, bounded: Bounded, state: Path
) -> None:
    async def scenario(pids: list[int]) -> None:
        before = sorted(state.glob("*/*.json"))
        async with Orchestrator(recover="leave") as orchestrator:
            assert orchestrator.recovered == []
        assert all(alive(pid) for pid in pids)
        assert sorted(state.glob("*/*.json")) == before

    with killed(tmp_path) as pids:
        bounded(scenario(pids))


def test_what_is_gone_by_itself_is_forgotten(
    tmp_path: Path, killed: Killed, bounded: Bounded, soon: Soon, state: Path
) -> None:
    async def scenario(pids: list[int]) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        await soon(lambda: not any(alive(pid) for pid in pids))
        async with Orchestrator() as orchestrator:
            fates = {each.key: each.fate for each in orchestrator.recovered}
            assert (fates["alice"], fates["bob"]) == (Fate.GONE, Fate.GONE)
        assert list(state.iterdir()) == []

    with killed(tmp_path) as pids:
        bounded(scenario(pids))


def test_two_that_start_at_once_share_what_was_left(tmp_path: Path, killed: Killed, bounded: Bounded) -> None:
    async def scenario() -> None:
        first, second = Orchestrator(recover="reap"), Orchestrator(recover="reap")
        await asyncio.gather(first.start(), second.start())
        keys = [each.key for each in (*first.recovered, *second.recovered)]
        assert sorted(keys) == ["", "alice", "bob"]
        await first.close()
        await second.close()
        (tmp_path / "go").touch()

    with killed(tmp_path):
        bounded(scenario())


def test_two_orchestrators_at_once_leave_each_other_alone(bounded: Bounded) -> None:
    async def scenario() -> None:
        async with (
            Orchestrator({"p": Pool("local", audit=False)}) as first,
            first.terminal("p", key="mine") as terminal,
        ):
            await terminal.run("kept=1")
            async with Orchestrator() as second:
                assert second.recovered == []
            assert (await terminal.run("echo $kept")).stdout == b"1\n"

    bounded(scenario())


def test_a_place_that_cannot_be_come_back_to_is_told_and_tried_again(
    tmp_path: Path, killed: Killed, bounded: Bounded, state: Path
) -> None:
    async def scenario() -> None:
        for path in state.glob("*/*.json"):
            if path.name != "owner.json":
                text = path.read_text()
                path.write_text(text.replace('"target": "local"', '"target": "nosuch:place"'))
        async with Orchestrator() as orchestrator:
            assert {each.fate for each in orchestrator.recovered} == {Fate.UNREACHABLE}
        assert len(list(state.glob("*/*.json"))) == 4  # the next start tries again

    with killed(tmp_path):
        bounded(scenario())
