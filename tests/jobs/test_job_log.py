"""A job's log: both streams apart and together, from any offset, live, and at its bounds."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import aclosing, contextmanager
from itertools import pairwise
from random import Random
from typing import Literal

import pytest

from hermes_exec.errors import UsageError
from hermes_exec.result import Event
from hermes_exec.terminal.job import Job, start_job
from hermes_exec.terminal.job_status import JobState
from hermes_exec.transport.link import Link
from tests.rigs.breadth import thorough

Live = Callable[[Callable[[Link], Awaitable[None]]], None]
LogStream = Literal["both", "stdout", "stderr"]

ALTERNATING = """
import os, sys, time
for number in range(int(sys.argv[1])):
    os.write(1 + number % 2, b"%d%s " % (number, b"oe"[number % 2 : number % 2 + 1]))
    if number % 100 == 0: time.sleep(.001)
"""


WOVEN = """
import os
for number in range(6000):
    os.write(1 + number % 2, b"x" * (1 + number % 3))
    os.read(0, 1)
"""


async def marked(job: Job, offset: int = 0) -> list[tuple[str, int]]:
    """Both streams, byte by byte, each with the name of its stream."""
    return [(event.kind, byte) async for event in job.logs(offset) for byte in event.data]


def seq(last: int) -> bytes:
    """What seq(1) writes."""
    return b"".join(b"%d\n" % number for number in range(1, last + 1))


@contextmanager
def small_disk(folder: str) -> Generator[None]:
    """A disk of 2 MiB at ``folder`` while this is open."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", folder]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("needs the right to mount a small disk. Try: run the tests as root")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


async def text(job: Job, offset: int = 0, stream: LogStream = "both", *, follow: bool = False) -> bytes:
    return b"".join([event.data async for event in job.logs(offset, stream, follow=follow)])


def test_streams_are_told_in_the_order_in_which_they_came(live: Live) -> None:
    async def scenario(link: Link) -> None:
        script = "echo 1; read x; echo 2 >&2; read x; echo 3; read x; echo 4 >&2"
        job = await start_job(link, "local", script, stdin=True)
        events: list[tuple[str, bytes]] = []
        async for event in job.logs(follow=True):
            events.append((event.kind, event.data))
            if len(events) < 4:
                await job.write(b"\n")
        assert events == [("stdout", b"1\n"), ("stderr", b"2\n"), ("stdout", b"3\n"), ("stderr", b"4\n")]
        assert [(event.kind, event.data) async for event in job.logs()] == events

    live(scenario)


def test_both_streams_hold_every_byte_of_each(live: Live) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", [sys.executable, "-c", ALTERNATING, "20000"])
        result = await job.wait()
        assert result.stdout == b"".join(b"%do " % number for number in range(0, 20000, 2))
        assert result.stderr == b"".join(b"%de " % number for number in range(1, 20000, 2))
        whole = await marked(job)
        assert bytes(byte for kind, byte in whole if kind == "stdout") == result.stdout
        assert bytes(byte for kind, byte in whole if kind == "stderr") == result.stderr

    live(scenario)


def test_a_log_is_the_same_from_any_offset(live: Live) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", [sys.executable, "-c", ALTERNATING, "30000"])
        result = await job.wait()
        whole = await marked(job)
        chosen = Random(7)
        for offset in [0, 1, len(whole) - 1, len(whole), *(chosen.randrange(len(whole)) for _ in range(12))]:
            assert await marked(job, offset) == whole[offset:]
            assert await text(job, offset, "stdout") == result.stdout[offset:]
            assert await text(job, offset, "stderr") == result.stderr[offset:]

    live(scenario)


@thorough
@pytest.mark.timeout(600)
def test_an_offset_far_into_a_finely_woven_log_is_found(live: Live) -> None:
    async def scenario(link: Link) -> None:  # more records than one stride of the index has
        job = await start_job(link, "local", [sys.executable, "-c", WOVEN], stdin=True)
        await feed_each_event(job)
        whole = await marked(job)
        assert len(whole) == 12000
        switches = sum(one[0] != two[0] for one, two in pairwise(whole))
        assert switches == 5999
        for offset in (8190, 8191, 8192, 8193, 11998):
            assert await marked(job, offset) == whole[offset:]

    live(scenario)


async def feed_each_event(job: Job) -> None:
    """Let the job write on each time that its last piece has come."""
    pieces = 0
    async for event in job.logs(follow=True):
        pieces += 1
        assert len(event.data) == 1 + (pieces - 1) % 3
        await job.write(b"\n")
        if pieces == 6000:
            break
    await job.close_stdin()
    await job.wait()


def test_a_negative_offset_counts_from_the_end(live: Live) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", "printf 0123456789; printf abc >&2")
        await job.wait()
        assert await text(job, -4, "stdout") == b"6789"
        assert await text(job, -100, "stdout") == b"0123456789"
        assert await text(job, -2, "stderr") == b"bc"

    live(scenario)


def test_following_gives_each_line_as_it_comes_and_ends_with_the_job(live: Live) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", ["cat"], stdin=True)
        async with aclosing(job.logs(follow=True)) as events:
            for number in range(20):
                line = b"line %d\n" % number
                await job.write(line)
                assert await anext(events) == Event("stdout", line)
            await job.close_stdin()
            with pytest.raises(StopAsyncIteration):
                await anext(events)

    live(scenario)


def test_following_from_beyond_the_end_waits_for_that_byte(live: Live) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", ["cat"], stdin=True)
        followers = [asyncio.ensure_future(text(job, 5, stream, follow=True)) for stream in ("both", "stdout")]
        for piece in (b"abc", b"def", b"ghi"):
            await job.write(piece)
        await job.close_stdin()
        assert await asyncio.gather(*followers) == [b"fghi", b"fghi"]

    live(scenario)


def test_without_follow_a_running_job_gives_what_there_is(live: Live) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", "echo so far; exec cat", stdin=True)
        async for _ in job.logs(follow=True):
            break
        assert await text(job) == b"so far\n"
        assert (await job.status()).state is JobState.RUNNING

    live(scenario)


def test_a_reader_who_is_slow_or_leaves_does_not_hold_the_job(live: Live) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", "head -c 60000000 /dev/zero", log_cap=100 << 20)
        async with aclosing(job.logs(follow=True)) as events:
            await anext(events)
            result = await job.wait(max_output=0)
            assert result.exit_code == 0
        async for _ in job.logs():
            break
        assert (await job.status()).stdout_bytes == 60_000_000

    live(scenario)


def test_two_readers_get_the_same(live: Live) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", "seq 100000")
        both = await asyncio.gather(text(job, follow=True), text(job, follow=True))
        assert both[0] == both[1] == seq(100_000)

    live(scenario)


@thorough
def test_a_long_log_is_whole_after_many_cuts(live: Live) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", "seq 3000000; seq 500000 >&2")
        seen = {"stdout": hashlib.sha256(), "stderr": hashlib.sha256()}
        total = cuts = 0
        async for event in job.logs(follow=True):
            seen[event.kind].update(event.data)
            total += len(event.data)
            if total > (cuts + 1) * 3_000_000:
                cuts += 1
                link.break_connection()
        assert cuts > 5
        for kind, most in (("stdout", 3_000_000), ("stderr", 500_000)):
            assert seen[kind].digest() == hashlib.sha256(seq(most)).digest()

    live(scenario)


def test_a_full_log_makes_the_job_wait_and_says_so(live: Live) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", "seq 1000000; echo never >&2", log_cap=100_000)
        status = await job.status()
        while status.state is JobState.RUNNING:
            status = await job.status()
        assert status.note == "its log is full"
        assert 99_000 < status.stdout_bytes <= 100_000
        with pytest.raises(TimeoutError):
            await job.wait(0.3)
        assert (await job.status()).stdout_bytes == status.stdout_bytes
        result = await job.kill(0.1)
        assert result.cancelled
        assert len(result.stdout) >= status.stdout_bytes
        assert seq(1_000_000).startswith(result.stdout)

    live(scenario)


def test_what_ended_at_the_cap_lost_nothing(live: Live) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", "seq 15000", log_cap=50_000)
        assert (await job.wait()).stdout == seq(15_000)

    live(scenario)


def test_a_full_disk_ends_the_job_with_that_reason(live: Live) -> None:
    async def scenario(link: Link) -> None:
        await (await start_job(link, "local", "true")).wait()
        with small_disk(f"/var/tmp/hx-{link.guest['id']}"):
            job = await start_job(link, "local", "head -c 50000000 /dev/zero; sleep 100")
            result = await job.wait(20)
            assert result.cancelled
            assert result.note.startswith("the target's disk was full")
            assert 1_000_000 < len(result.stdout) <= 2 << 20
            await job.prune()

    live(scenario)


def test_a_result_keeps_head_and_tail_of_a_long_output(live: Live) -> None:
    async def scenario(link: Link) -> None:
        job = await start_job(link, "local", "seq 100000; echo short >&2")
        whole = seq(100_000)
        result = await job.wait(max_output=1000)
        missing = len(whole) - 1000
        assert result.stdout == whole[:400] + b"\n[... %d bytes omitted ...]\n" % missing + whole[-600:]
        assert result.truncated["stdout"].total == len(whole)
        assert result.truncated["stdout"].omitted == missing
        assert result.stderr == b"short\n"
        assert "stderr" not in result.truncated

    live(scenario)


def test_the_log_of_an_unknown_job_is_an_error(live: Live) -> None:
    async def scenario(link: Link) -> None:
        with pytest.raises(UsageError, match="no job nope"):
            await text(Job(link, "nope"))

    live(scenario)
