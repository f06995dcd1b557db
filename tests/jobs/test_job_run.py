"""What a job is given, what it gives back, and what becomes of its processes."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hermes_exec.errors import Closed, UsageError
from hermes_exec.terminal.job import Job, JobOptions, list_jobs, start_job
from hermes_exec.terminal.job_status import JobState
from hermes_exec.transport.link import Link
from tests.jobs.conftest import names_in
from tests.rigs.breadth import thorough
from tests.rigs.processes import alive, name, parent

Live = Callable[[Callable[[Link], Awaitable[None]]], None]
Soon = Callable[[Callable[[], object]], Awaitable[None]]

ESCAPES = """
echo $$ >>{0}
sh -c 'echo $$ >>{0}; trap "" TERM INT HUP; while :; do sleep 1; done' &
setsid sh -c 'echo $$ >>{0}; exec sleep 1000' &
( setsid sh -c 'echo $$ >>{0}; trap "" TERM; while :; do sleep 1; done' & )
nohup sh -c 'echo $$ >>{0}; exec sleep 1000' >/dev/null 2>&1 &
env -i /bin/sh -c 'echo $$ >>{0}; exec /bin/sleep 1000' &
wait
"""


def test_output_and_exit_code_are_kept(live: Live) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", "printf 'out\\377'; echo err >&2; exit 3")
        result = await job.wait()
        assert (result.exit_code, result.stdout, result.stderr) == (3, b"out\xff", b"err\n")

    live(scenario)


def test_words_run_without_a_shell(live: Live) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", ["printf", "%s|", "a b", "$HOME", "*"])
        assert (await job.wait()).stdout == b"a b|$HOME|*|"

    live(scenario)


def test_environment_and_folder_are_those_asked_for(live: Live, tmp_path: Path) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", 'echo "$MARK $OWN $PWD"', env={"OWN": "mine"}, cwd=tmp_path)
        assert (await job.wait()).stdout == f"of the client mine {tmp_path}\n".encode()

    live(scenario)


def test_a_missing_program_leaves_no_job(live: Live, state: Path) -> None:
    async def scenario(link: Link) -> None:
        with pytest.raises(UsageError, match="no-such-program"):
            await start_job(link, "local", ["no-such-program"])
        assert await list_jobs(link) == []
        assert names_in(state) == []

    live(scenario)


def test_a_missing_folder_leaves_no_job(live: Live) -> None:
    async def scenario(link: Link) -> None:
        with pytest.raises(UsageError, match="create the folder"):
            await start_job(link, "local", "true", cwd="/no/such/folder")
        assert await list_jobs(link) == []

    live(scenario)


def test_a_command_of_a_megabyte_runs(live: Live) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", "x='" + "a" * (1 << 20) + "'; echo ${#x}")
        assert (await job.wait()).stdout == b"1048576\n"

    live(scenario)


def test_input_arrives_in_order_and_ends(live: Live) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", ["sha256sum"], stdin=True)
        for start in range(0, 1000, 100):
            await job.write(b"".join(b"%d\n" % number for number in range(start, start + 100)) * 50)
        await job.close_stdin()
        await job.close_stdin()
        whole = await start_job(
            link,
            "local",
            "for s in $(seq 0 100 900); do for i in $(seq 50); do seq $s $((s+99)); done; done | sha256sum",
        )
        assert (await job.wait()).stdout == (await whole.wait()).stdout

    live(scenario)


@thorough
def test_input_arrives_once_after_many_cuts(live: Live) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", ["sha256sum"], stdin=True)
        whole = b"".join(b"%d\n" % number for number in range(1_000_000))
        for start in range(0, len(whole), 500_000):
            writing = asyncio.ensure_future(job.write(whole[start : start + 500_000]))
            await asyncio.sleep(0)
            link.break_connection()
            await writing
        await job.close_stdin()
        assert (await job.wait()).stdout == hashlib.sha256(whole).hexdigest().encode() + b"  -\n"

    live(scenario)


def test_input_after_its_end_is_refused(live: Live) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", ["sleep", "60"], stdin=True)
        await job.close_stdin()
        with pytest.raises(Closed):
            await job.write(b"more")
        with pytest.raises(Closed):
            await (await start_job(link, "local", "sleep 60")).write(b"it takes none")

    live(scenario)


def test_a_writer_waits_for_its_job_and_goes_on_when_that_ends(live: Live) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", ["sleep", "60"], stdin=True)
        writing = asyncio.ensure_future(job.write(bytes(20 << 20)))
        done, _ = await asyncio.wait([writing], timeout=0.3)
        assert not done
        await job.kill(0.1)
        await writing

    live(scenario)


def test_the_signal_that_ended_it_is_told(live: Live) -> None:
    async def scenario(link: Link) -> None:
        result = await (await start_job(link, "local", "kill -SEGV $$")).wait()
        assert (result.exit_code, result.signal) == (None, signal.SIGSEGV)

    live(scenario)


def test_status_tells_a_life_from_start_to_end(live: Live) -> None:
    async def scenario(link: Link) -> None:
        before = time.time()
        job = await start_job(link, "local", ["cat", "-", "/dev/null"], name="the cat", stdin=True)
        status = await job.status()
        assert (status.state, status.name, status.command) == (JobState.RUNNING, "the cat", "cat - /dev/null")
        assert name(status.pid) == "cat"
        assert status.result is None
        assert status.ended is None
        await job.write(b"12345")
        await job.close_stdin()
        await job.wait()
        status = await job.status()
        assert status.state is JobState.ENDED
        assert status.result is not None
        assert status.result.exit_code == 0
        assert (status.stdout_bytes, status.stderr_bytes) == (5, 0)
        assert status.ended is not None
        assert before - 1 < status.started <= status.ended < time.time() + 1
        assert abs(status.duration_s - (status.ended - status.started)) < 0.2

    live(scenario)


def test_jobs_are_listed_in_the_order_of_their_starts(live: Live) -> None:
    async def scenario(link: Link) -> None:
        jobs = [await start_job(link, "local", "true", name=str(number)) for number in range(5)]
        listed = await list_jobs(link)
        assert [status.id for status in listed] == [job.id for job in jobs]
        assert [status.name for status in listed] == ["0", "1", "2", "3", "4"]

    live(scenario)


def test_an_unknown_job_is_an_error_that_names_it(live: Live) -> None:
    async def scenario(link: Link) -> None:
        with pytest.raises(UsageError, match="no job nope here"):
            await Job(link, "nope").status()

    live(scenario)


def test_an_id_that_is_taken_starts_nothing(live: Live, tmp_path: Path) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", "true")
        answer = await link.request("start", {"job": job.id, "command": f"echo x >>{tmp_path}/ran".encode()})
        assert answer["error"] == "exists"
        await job.wait()
        assert not (tmp_path / "ran").exists()

    live(scenario)


@pytest.mark.parametrize("id", ["", "../x", "a/b", "A", "a" * 65, "a.b", 3])
def test_an_id_that_could_be_a_path_is_refused(live: Live, id: object) -> None:
    async def scenario(link: Link) -> None:
        link.load_part("jobs")
        assert (await link.request("start", {"job": id, "command": b"true"}))["error"] == "malformed"

    live(scenario)


def test_a_start_is_never_repeated_by_a_broken_connection(live: Live, tmp_path: Path) -> None:
    async def scenario(link: Link) -> None:
        for number in range(20):
            starting = asyncio.ensure_future(start_job(link, "local", f"echo {number} >>{tmp_path}/ran"))
            await asyncio.sleep(number * 0.001)
            link.break_connection()
            await (await starting).wait()
        ran = (tmp_path / "ran").read_text().split()
        assert sorted(map(int, ran)) == list(range(20))

    live(scenario)


def test_what_the_program_leaves_running_is_ended_with_it(live: Live, tmp_path: Path) -> None:
    async def scenario(link: Link) -> None:
        pid = tmp_path / "pid"
        command = f"(setsid sh -c 'echo $$ >{pid}; exec sleep 1000' &); until [ -s {pid} ]; do :; done; exit 4"
        result = await (await start_job(link, "local", command)).wait()
        assert result.exit_code == 4
        assert not result.cancelled
        assert not alive(int(pid.read_text()))

    live(scenario)


def test_kill_leaves_nothing_of_the_tree(live: Live, tmp_path: Path, soon: Soon) -> None:
    async def scenario(link: Link) -> None:
        pids = tmp_path / "pids"
        pids.touch()
        job = await start_job(link, "local", ESCAPES.format(pids))
        await soon(lambda: len(pids.read_text().split()) == 6)
        result = await job.kill(0.3)
        assert result.cancelled
        assert [pid for pid in map(int, pids.read_text().split()) if alive(pid)] == []

    live(scenario)


def test_kill_lets_the_program_clean_up_within_its_grace(live: Live) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(
            link, "local", "trap 'echo cleaned; exit 0' TERM; echo ready; while :; do sleep .05; done"
        )
        async for _ in job.logs(follow=True):
            break
        result = await job.kill(10)
        assert (result.exit_code, result.stdout) == (0, b"ready\ncleaned\n")

    live(scenario)


def test_killing_an_ended_job_changes_nothing(live: Live) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", "exit 5")
        before = await job.wait()
        assert await job.kill() == before

    live(scenario)


def test_a_wait_that_times_out_leaves_the_job_alone(live: Live) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", "cat; echo done", stdin=True)
        with pytest.raises(TimeoutError):
            await job.wait(0.1)
        await job.close_stdin()
        assert (await job.wait()).stdout == b"done\n"

    live(scenario)


def test_its_cap_ends_a_job_and_its_tree(live: Live, tmp_path: Path) -> None:
    async def scenario(link: Link) -> None:
        pid = tmp_path / "pid"
        command = f"setsid sh -c 'echo $$ >{pid}; exec sleep 1000' & wait"
        result = await (await start_job(link, "local", command, cap_s=2)).wait()
        assert result.timed_out
        assert 1.9 < result.duration_s < 30
        assert not alive(int(pid.read_text()))

    live(scenario)


def test_a_killed_runner_does_not_set_its_program_free(live: Live, soon: Soon) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", ["sleep", "1000"])
        pid = (await job.status()).pid
        runner = parent(pid)
        guest = parent(runner)
        os.kill(guest, signal.SIGSTOP)  # it shall find the program when that has another parent already
        os.kill(runner, signal.SIGKILL)
        await soon(lambda: parent(pid) != runner)
        os.kill(guest, signal.SIGCONT)
        result = await job.wait()
        assert result.signal == signal.SIGKILL
        assert not alive(pid)

    live(scenario)


@pytest.mark.parametrize(
    "options", [{"cap_s": 0}, {"cap_s": -1.0}, {"log_cap": 0}, {"name": "x" * 257}, {"env": {"a-b": "1"}}]
)
def test_an_option_that_makes_no_sense_starts_nothing(live: Live, options: JobOptions) -> None:
    async def scenario(link: Link) -> None:
        with pytest.raises(UsageError):
            await start_job(link, "local", "true", **options)
        with pytest.raises(UsageError):
            await start_job(link, "local", [])
        assert await list_jobs(link) == []

    live(scenario)
