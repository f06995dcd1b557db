"""A reader that stalls makes the producer wait, and nobody's memory grows."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.testing.streams import text_until
from tests.faults.rig import CuttingBackend, guest_pid

if TYPE_CHECKING:
    from hermes_exec.testing import SuiteTarget

MIB = 1 << 20


def resident(pid: int | str = "self") -> int:
    """Bytes of memory that a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def written(pid: int) -> int:
    """Bytes that a process has written so far."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


async def at_rest(pid: int) -> int:
    """How much a process has written by the time it writes no more."""
    before = -1
    while before != (now := written(pid)):
        before = now
        await asyncio.sleep(0.2)
    return now


def test_a_stalled_reader_stops_the_producer_and_holds_little_memory(place: SuiteTarget) -> None:
    async def stall() -> None:
        terminal = await place.get_shared_terminal()
        guest = await guest_pid(terminal)
        ours, theirs = resident(), resident(guest)
        async with terminal.stream(["sh", "-c", "echo $$; exec cat /dev/zero"], grace_s=0.1) as stream:
            pid = int((await text_until(stream, b"\n")).split(b"\n")[0])
            assert await at_rest(pid) < 24 * MIB
            assert resident(guest) - theirs < 24 * MIB
            assert resident() - ours < 24 * MIB

    place.run(stall())


def test_many_stalled_readers_hold_little_memory_each(place: SuiteTarget) -> None:
    async def stall() -> None:
        terminal = await place.get_shared_terminal()
        guest = await guest_pid(terminal)
        theirs = resident(guest)
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(10):
                await stack.enter_async_context(terminal.stream(["cat", "/dev/zero"], grace_s=0.1))
            await asyncio.sleep(1)
            assert resident(guest) - theirs < 10 * 12 * MIB
            assert (await terminal.run("echo well", timeout=10)).stdout == b"well\n"

    place.run(stall())


def test_a_producer_goes_on_into_a_bounded_spool_while_nobody_is_connected(
    place: SuiteTarget, backend: CuttingBackend
) -> None:
    async def away() -> None:
        terminal = await place.get_shared_terminal()
        guest = await guest_pid(terminal)
        theirs = resident(guest)
        async with terminal.stream(["sh", "-c", "echo $$; exec cat /dev/zero"], grace_s=0.1) as stream:
            pid = int((await text_until(stream, b"\n")).split(b"\n")[0])
            backend.gate.clear()
            backend.channel.cut_after(0, None)
            written_by_then = await at_rest(pid)
            assert 200 * MIB < written_by_then < 300 * MIB
            assert resident(guest) - theirs < 24 * MIB
            backend.gate.set()

    place.run(away())


def test_input_for_a_command_that_does_not_read_is_held_back_here(place: SuiteTarget) -> None:
    async def push() -> None:
        terminal = await place.get_shared_terminal()
        guest = await guest_pid(terminal)
        theirs = resident(guest)
        async with terminal.stream(["sleep", "60"], interactive=True, grace_s=0.1) as stream:
            pushing = asyncio.ensure_future(stream.write(bytes(64 * MIB)))
            await asyncio.sleep(0.5)
            assert not pushing.done()
            assert resident(guest) - theirs < 24 * MIB
            pushing.cancel()

    place.run(push())


def test_a_large_output_that_is_truncated_holds_little_memory_here(place: SuiteTarget) -> None:
    async def drown() -> None:
        terminal = await place.get_shared_terminal()
        await terminal.run(["head", "-c", "1000000", "/dev/zero"], max_output=1000)
        ours = resident()
        result = await terminal.run(["head", "-c", str(200 * MIB), "/dev/zero"], max_output=1000)
        assert result.truncated["stdout"].total == 200 * MIB
        assert resident() - ours < 24 * MIB

    place.run(drown())
