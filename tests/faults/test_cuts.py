"""The channel breaks at any byte: nothing runs twice, no byte is lost or repeated."""

from __future__ import annotations

import asyncio
import hashlib
import os
from typing import TYPE_CHECKING

import pytest

from hermes_exec.guest.core import wire
from hermes_exec.testing.place import count_living, marker
from hermes_exec.transport.bootstrap import GuestModules
from tests.faults.rig import CuttingBackend
from tests.rigs.breadth import thorough

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec.result import Result
    from hermes_exec.terminal.terminal import Terminal
    from hermes_exec.testing import SuiteTarget

OUT = b"first line\nsecond line\n"
ODD_SIZES = [300_001, 14, 13, 1, 1_234_567, 262_158, 262_144, 99_991, 28, 2_500_003]


async def talk(terminal: Terminal, file: Path) -> Result:
    """A short conversation that leaves a trace of how often it took place."""
    return await terminal.run(
        ["sh", "-c", f"echo ran >> {file}; read x; echo first line; echo $x; exit 7"], stdin="second line\n"
    )


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("direction", ["up", "down"])
@thorough
def test_a_cut_at_any_byte_of_a_conversation_changes_nothing(
    place: SuiteTarget, backend: CuttingBackend, tmp_path: Path, direction: str
) -> None:
    async def converse() -> int:
        terminal = await place.get_shared_terminal()
        await talk(terminal, tmp_path / "rehearsal")  # what is sent only once is over after this
        await asyncio.sleep(0.1)
        before = backend.channel.sent, backend.channel.taken
        await talk(terminal, tmp_path / "rehearsal")
        sent, taken = backend.channel.sent - before[0], backend.channel.taken - before[1]
        count = sent if direction == "up" else taken
        assert count > 60
        for at in range(count + 1):
            backend.channel.cut_after(*((at, None) if direction == "up" else (None, at)))
            result = await talk(terminal, tmp_path / "trace")
            assert (result.stdout, result.exit_code) == (OUT, 7), f"after {at} bytes {direction}"
        return count

    count = place.run(converse(), 100)
    assert (tmp_path / "trace").read_text() == "ran\n" * (count + 1)


def test_cuts_in_the_middle_of_an_upload_lose_and_repeat_nothing(place: SuiteTarget, backend: CuttingBackend) -> None:
    data = os.urandom(20_000_000)

    async def upload() -> Result:
        terminal = await place.get_shared_terminal()
        backend.limits.extend((size + 3000, None) for size in ODD_SIZES)
        backend.channel.cut_after(3_000_001, None)
        return await terminal.run(["sha256sum"], stdin=data)

    assert place.run(upload()).stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert not backend.limits


@thorough
def test_cuts_in_the_middle_of_a_stream_lose_and_repeat_nothing(place: SuiteTarget, backend: CuttingBackend) -> None:
    wanted = b"".join(b"%d\n" % n for n in range(1, 2_000_001))

    async def stream() -> bytes:
        terminal = await place.get_shared_terminal()
        backend.limits.extend((None, size + 3000) for size in ODD_SIZES)
        backend.channel.cut_after(None, 1_000_003)
        async with terminal.stream(["seq", "1", "2000000"]) as events:
            return b"".join([event.data async for event in events])

    assert place.run(stream()) == wanted
    assert not backend.limits


@thorough
def test_a_cut_while_reconnecting_changes_nothing(place: SuiteTarget, backend: CuttingBackend, tmp_path: Path) -> None:
    async def converse() -> Result:
        terminal = await place.get_shared_terminal()
        backend.limits.extend([(0, None), (None, 0), (5, None), (None, 5), (None, 40), (200, None), (None, 300)])
        backend.channel.cut_after(40, None)
        return await talk(terminal, tmp_path / "trace")

    assert place.run(converse()).stdout == OUT
    assert (tmp_path / "trace").read_text() == "ran\n"


@pytest.mark.parametrize("size", [1_000_000, 30_000_000])
def test_what_a_command_writes_while_nobody_is_connected_is_kept(
    place: SuiteTarget, backend: CuttingBackend, size: int
) -> None:
    async def away() -> tuple[Result, bytes]:
        terminal = await place.get_shared_terminal()
        other = CuttingBackend()  # to see from elsewhere that the command has ended
        async with terminal.stream(
            ["sh", "-c", f"read x; head -c {size} /dev/zero | tr '\\0' x; echo end; exit 3"], interactive=True
        ) as stream:
            backend.gate.clear()
            await stream.write("go\n")
            backend.channel.cut_after(None, 0)
            await other.open()
            await asyncio.sleep(1.0)  # it runs on, and into the spool
            backend.gate.set()
            events = [event async for event in stream]
            assert events[-1].result is not None
            return events[-1].result, b"".join(event.data for event in events)

    result, data = place.run(away())
    assert result.exit_code == 3
    assert len(data) == size + 4
    assert data == b"x" * size + b"end\n"


def test_requests_made_while_nobody_is_connected_run_once_and_in_order(
    place: SuiteTarget, backend: CuttingBackend, tmp_path: Path
) -> None:
    async def away() -> list[Result]:
        terminal = await place.get_shared_terminal()
        session = await terminal.session()
        await session.run("n=0")
        backend.gate.clear()
        backend.channel.cut_after(0, None)
        await asyncio.sleep(0)
        asked = [
            asyncio.ensure_future(session.run(f"n=$((n + 1)); echo $n; echo $n >> {tmp_path}/trace")) for _ in range(20)
        ]
        await asyncio.sleep(0.1)
        assert not any(one.done() for one in asked)
        backend.gate.set()
        return await asyncio.gather(*asked)

    assert [result.stdout for result in place.run(away())] == [b"%d\n" % n for n in range(1, 21)]
    assert (tmp_path / "trace").read_text().split() == [str(n) for n in range(1, 21)]


@thorough
def test_a_cancel_while_nobody_is_connected_returns_soon_and_is_done_later(
    place: SuiteTarget, backend: CuttingBackend
) -> None:
    mark = marker()

    async def away() -> None:
        terminal = await place.get_shared_terminal()
        running = asyncio.ensure_future(terminal.run(["sleep", mark], grace_s=0.1))
        while not await count_living(terminal, mark):
            await asyncio.sleep(0.01)
        backend.gate.clear()
        backend.channel.cut_after(0, None)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        backend.gate.set()
        while await count_living(terminal, mark):
            await asyncio.sleep(0.01)

    place.run(away(), 30)


def test_parts_that_were_all_cut_off_are_sent_again_in_their_order() -> None:
    async def sent_again() -> list[bytes]:
        sent: list[bytes] = []
        parts = GuestModules(sent.append, "source")
        parts.initial_frames()
        parts.load("files")
        sent.clear()
        parts.set_loaded([])
        parts.resend()
        return [frame[wire.HEADER.size :].partition(b"\0")[0] for frame in sent]

    assert asyncio.run(sent_again()) == [b"work", b"files"]


def test_a_part_that_was_cut_off_on_its_way_is_sent_again(
    place: SuiteTarget, backend: CuttingBackend, tmp_path: Path
) -> None:
    async def write() -> bytes:
        terminal = await place.get_shared_terminal()
        backend.channel.cut_after(500, None)  # in the middle of the part for files
        await terminal.write(str(tmp_path / "file"), b"content")
        return await terminal.read(str(tmp_path / "file"))

    assert place.run(write()) == b"content"
