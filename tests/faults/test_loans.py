"""Bulk output whose pipe the reader takes over: the same promises as for what goes through the channel."""

from __future__ import annotations

import asyncio
import os
import resource
import struct
from functools import cache
from typing import TYPE_CHECKING

import pytest

from hermes_exec.guest.core import wire
from hermes_exec.testing.place import link
from tests.faults.rig import CuttingBackend
from tests.faults.test_memory import at_rest

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec.result import Result
    from hermes_exec.terminal.stream import Stream
    from hermes_exec.testing import SuiteTarget

MIB = 1 << 20
LAST = 2_000_000
COMMANDS = [["seq", "1", str(LAST)], f"seq 1 {LAST}"]
IDS = ["argv", "session"]
QUESTIONS = [b"%d" % n * 5000 for n in range(20)]


@cache
def numbers() -> bytes:
    """The output of the commands."""
    return b"".join(b"%d\n" % n for n in range(1, LAST + 1))


@pytest.fixture
def backend() -> CuttingBackend:
    return CuttingBackend(near=True)


async def read_to(stream: Stream, size: int) -> bytes:
    """At least so many bytes of a stream."""
    pieces: list[bytes] = []
    got = 0
    while got < size:
        event = await anext(stream)
        pieces.append(event.data)
        got += len(event.data)
    return b"".join(pieces)


@pytest.mark.parametrize("command", COMMANDS, ids=IDS)
def test_most_of_a_long_output_goes_around_the_channel_and_is_whole(
    place: SuiteTarget, backend: CuttingBackend, command: str | list[str]
) -> None:
    async def stream() -> bytes:
        terminal = await place.get_shared_terminal()
        async with terminal.stream(command) as events:
            return b"".join([event.data async for event in events])

    assert place.run(stream()) == numbers()
    assert backend.channel.taken < len(numbers()) // 2


def test_a_reader_that_has_the_pipe_leaves_the_guest_alone(place: SuiteTarget, backend: CuttingBackend) -> None:
    async def stream() -> int:
        terminal = await place.get_shared_terminal()
        async with terminal.stream(COMMANDS[0]) as stream:
            await read_to(stream, 6 * MIB)
            sent = backend.channel.sent
            await read_to(stream, 6 * MIB)
            return backend.channel.sent - sent

    assert place.run(stream()) == 0


@pytest.mark.parametrize("command", COMMANDS, ids=IDS)
def test_cuts_while_the_reader_has_the_pipe_lose_and_repeat_nothing(
    place: SuiteTarget, backend: CuttingBackend, command: str | list[str]
) -> None:
    async def stream() -> bytes:
        terminal = await place.get_shared_terminal()
        got = b""
        async with terminal.stream(command) as stream:
            while len(got) < len(numbers()):
                got += await read_to(stream, min(700_001, len(numbers()) - len(got)))
                link(terminal).break_connection()
            assert [event.data async for event in stream] == [b""]
            return got

    assert place.run(stream(), 60) == numbers()
    assert len(backend.channels) > 10


@pytest.mark.parametrize("kind", [wire.HANDOFF, wire.RETURN])
@pytest.mark.parametrize("at", [0, 1, 14, 21, 22, 30])
def test_a_cut_in_the_frames_of_a_loan_loses_and_repeats_nothing(
    place: SuiteTarget, backend: CuttingBackend, kind: int, at: int
) -> None:
    async def stream() -> bytes:
        terminal = await place.get_shared_terminal()
        size = wire.HANDOFF_FIELDS.size if kind == wire.HANDOFF else wire.RETURN_FIELDS.size
        backend.channel.cut_in = struct.pack(">IBB", size, kind, wire.STDOUT), at
        async with terminal.stream(COMMANDS[0]) as events:
            return b"".join([event.data async for event in events])

    assert place.run(stream()) == numbers()
    assert len(backend.channels) == 2 or at > wire.HEADER.size + wire.RETURN_FIELDS.size - 1


def test_a_pipe_that_cannot_be_opened_here_is_read_there(place: SuiteTarget, backend: CuttingBackend) -> None:
    async def stream() -> bytes:
        terminal = await place.get_shared_terminal()
        async with terminal.stream(COMMANDS[0]) as stream:
            got = await read_to(stream, MIB)
            usual = resource.getrlimit(resource.RLIMIT_NOFILE)
            free = os.dup(0)
            os.close(free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, usual[1]))
            try:
                return got + b"".join([event.data async for event in stream])
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, usual)

    assert place.run(stream()) == numbers()
    assert backend.channel.taken > len(numbers())


def test_a_stalled_reader_that_has_the_pipe_stops_the_producer(place: SuiteTarget) -> None:
    async def stall() -> None:
        terminal = await place.get_shared_terminal()
        async with terminal.stream(["sh", "-c", "echo $$; exec cat /dev/zero"], grace_s=0.1) as stream:
            first = await read_to(stream, 16 * MIB)
            assert await at_rest(int(first.split(b"\n")[0])) < len(first) + 12 * MIB

    place.run(stall())


def test_a_command_whose_pipe_the_reader_has_answers_what_it_is_asked(
    place: SuiteTarget, backend: CuttingBackend
) -> None:
    async def talk() -> list[bytes]:
        terminal = await place.get_shared_terminal()
        command = ["sh", "-c", f"head -c {8 * MIB} /dev/zero; exec cat"]
        async with terminal.stream(command, interactive=True) as stream:
            await read_to(stream, 8 * MIB)
            said: list[bytes] = []
            for question in QUESTIONS:
                await stream.write(question)
                said.append(await read_to(stream, len(question)))
            return said

    assert place.run(talk()) == QUESTIONS
    assert backend.channel.taken < 8 * MIB


def test_a_timeout_ends_a_command_whose_pipe_the_reader_has(place: SuiteTarget) -> None:
    async def endless() -> Result:
        terminal = await place.get_shared_terminal()
        result = await terminal.run(["cat", "/dev/zero"], timeout=1.5, grace_s=0.1, max_output=1000)
        assert (await terminal.run("echo well", timeout=10)).stdout == b"well\n"
        return result

    assert place.run(endless()).timed_out


def test_what_comes_after_a_cut_is_kept_though_the_reader_had_the_pipe(
    place: SuiteTarget, backend: CuttingBackend
) -> None:
    async def away() -> tuple[bytes, int | None]:
        terminal = await place.get_shared_terminal()
        async with terminal.stream(["sh", "-c", f"seq 1 {LAST}; exit 3"]) as stream:
            got = await read_to(stream, 6 * MIB)
            backend.gate.clear()
            backend.channel.cut_after(None, 0)
            await asyncio.sleep(1.0)  # it runs on, and into the spool
            backend.gate.set()
            events = [event async for event in stream]
            assert events[-1].result is not None
            return got + b"".join(event.data for event in events), events[-1].result.exit_code

    assert place.run(away()) == (numbers(), 3)


def test_a_child_in_the_background_does_not_keep_the_pipe_from_being_given_back(place: SuiteTarget) -> None:
    async def behind() -> Result:
        terminal = await place.get_shared_terminal()
        async with await terminal.session() as session:
            result = await session.run(f"sleep 60 & seq 1 {LAST}", max_output=len(numbers()))
            assert (await session.run("echo next")).stdout == b"next\n"
            return result

    assert place.run(behind(), 30).stdout == numbers()


def test_a_download_that_is_cut_while_we_have_its_pipe_arrives_whole(
    place: SuiteTarget, backend: CuttingBackend, tmp_path: Path
) -> None:
    (tmp_path / "there").write_bytes(numbers())

    def cut(done: int, _all: int, _files: int, _all_files: int) -> None:
        if done > (len(backend.channels) + 4) * MIB:
            backend.channel.cut_after(None, 0)

    async def fetch() -> None:
        terminal = await place.get_shared_terminal()
        await terminal.download(str(tmp_path / "there"), str(tmp_path / "here"), progress=cut)

    place.run(fetch(), 60)
    assert (tmp_path / "here").read_bytes() == numbers()
    assert len(backend.channels) > 2
