"""Jobs: commands that outlive the client that started them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import UsageError
from hermes_exec.testing.behaviours import Behaviours, exercises, needs
from hermes_exec.testing.place import count_living, link, marker

if TYPE_CHECKING:
    from hermes_exec.terminal.job import Job
    from hermes_exec.terminal.terminal import Terminal


@contextlib.asynccontextmanager
async def job(terminal: Terminal, command: str | list[str], **options: Any) -> AsyncGenerator[Job]:
    """Run a job for one test, and remove it afterwards."""
    started = await terminal.start(command, **options)
    try:
        yield started
    finally:
        await started.kill(0.1)
        await started.prune()


class JobsSuite(Behaviours, exercises="guest"):
    """The output and status of a job are kept until requested."""

    @needs("jobs")
    @exercises("target")
    async def test_a_job_ends_with_its_output_and_its_exit_code(self, terminal: Terminal) -> None:
        async with job(terminal, "echo out; echo err >&2; exit 3") as started:
            result = await started.wait(20)
        assert (result.stdout, result.stderr, result.exit_code) == (b"out\n", b"err\n", 3)

    @needs("jobs")
    async def test_a_job_may_be_words(self, terminal: Terminal, folder: str) -> None:
        async with job(terminal, ["printf", "%s|", "a b", "$HOME", ""], cwd=folder) as started:
            assert (await started.wait(20)).stdout == b"a b|$HOME||"

    @needs("jobs")
    async def test_starting_a_missing_program_is_an_error(self, terminal: Terminal) -> None:
        with pytest.raises(UsageError):
            await terminal.start(["no-such-program-anywhere"])

    @needs("jobs")
    @exercises("channel")
    async def test_a_start_that_is_cancelled_at_any_moment_leaves_no_job(self, terminal: Terminal) -> None:
        mark = marker()
        for moment in range(0, 60, 4):
            starting = asyncio.ensure_future(terminal.start(["sleep", mark]))
            for _ in range(moment):
                await asyncio.sleep(0.0001)
            starting.cancel()
            await asyncio.wait([starting])
            if not starting.cancelled():
                await starting.result().kill(0.1)
                await starting.result().prune()
            assert await terminal.jobs() == []
        assert await count_living(terminal, mark) == 0

    @needs("jobs")
    async def test_the_log_of_a_job_can_be_read_while_it_runs_from_any_offset(self, terminal: Terminal) -> None:
        mark = marker()
        async with job(terminal, f"printf 0123456789; sleep {mark}") as started:
            seen = b""
            async for event in started.logs(4, "stdout", follow=True):
                seen += event.data
                if len(seen) == 6:
                    break
            assert seen == b"456789"

    @needs("jobs")
    async def test_following_a_log_ends_with_the_job(self, terminal: Terminal) -> None:
        async with job(terminal, "for n in 1 2 3; do echo $n; sleep 0.05; done") as started:
            seen = b"".join([event.data async for event in started.logs(follow=True)])
        assert seen == b"1\n2\n3\n"

    @needs("jobs")
    async def test_a_job_can_be_sent_input(self, terminal: Terminal) -> None:
        async with job(terminal, ["cat"], stdin=True) as started:
            await started.write("one ")
            await started.write("two")
            await started.close_stdin()
            assert (await started.wait(20)).stdout == b"one two"

    @needs("jobs", "kill_tree")
    @exercises("target")
    async def test_killing_a_job_ends_all_that_it_started(self, terminal: Terminal) -> None:
        mark = marker()
        async with job(terminal, f"setsid sh -c '(sleep {mark} &); sleep {mark}' & echo in; sleep {mark}") as started:
            async for _ in started.logs(follow=True):
                break
            result = await started.kill(0.1)
            assert not result.ok
            assert await count_living(terminal, mark) == 0

    @needs("jobs")
    async def test_jobs_are_listed_with_their_names(self, terminal: Terminal) -> None:
        mark = marker()
        async with job(terminal, f"sleep {mark}", name="my job") as started:
            known = {status.id: status for status in await terminal.jobs()}
            assert known[started.id].name == "my job"
            assert (await (await terminal.job(started.id)).status()).id == started.id

    @needs("jobs", "reconnect")
    @exercises("channel")
    async def test_a_job_outlives_the_connection(self, terminal: Terminal) -> None:
        async with job(terminal, "sleep 0.3; echo done") as started:
            link(terminal).break_connection()
            assert (await started.wait(20)).stdout == b"done\n"

    @needs("jobs", "sessions")
    async def test_a_job_outlives_sessions_and_time_limits(self, terminal: Terminal) -> None:
        mark = marker()
        async with job(terminal, f"sleep {mark}"):
            async with terminal.session() as session:
                await session.run("sleep 60", timeout=0.1, grace_s=0.1)
            assert await count_living(terminal, mark) >= 1

    @needs("jobs")
    async def test_many_jobs_at_once_each_keep_their_own(self, terminal: Terminal) -> None:
        jobs = await asyncio.gather(*(terminal.start(f"echo {n}; exit {n}") for n in range(12)))
        results = await asyncio.gather(*(one.wait(20) for one in jobs))
        assert [(r.stdout, r.exit_code) for r in results] == [(b"%d\n" % n, n) for n in range(12)]
        await asyncio.gather(*(one.prune() for one in jobs))
