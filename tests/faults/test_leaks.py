"""Many commands leave nothing behind: no descriptor, no process, no memory that grows."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing.place import link
from tests.faults.rig import guest_pid
from tests.faults.test_memory import MIB, resident
from tests.rigs.breadth import thorough
from tests.rigs.processes import alive, parent, tree

if TYPE_CHECKING:
    from hermes_exec.terminal.terminal import Terminal
    from hermes_exec.testing import SuiteTarget


@dataclass(frozen=True)
class Holdings:
    """What the orchestrator and the place hold."""

    ours: int
    theirs: int
    processes: int
    files: int
    memory: int


async def holdings(terminal: Terminal) -> Holdings:
    """Look once all is quiet."""
    await asyncio.sleep(0.2)
    guest = await guest_pid(terminal)
    await asyncio.sleep(0.2)
    folder = Path(str(link(terminal).guest["folder"]))
    return Holdings(
        ours=len(os.listdir("/proc/self/fd")),
        theirs=len(os.listdir(f"/proc/{guest}/fd")),
        # A helper reaps what a program left below it when it is used again, and there are only so many helpers.
        processes=sum(map(alive, tree(parent(guest)))),
        files=sum(1 for _ in folder.rglob("*")),
        memory=resident(guest) + resident(),
    )


async def turn(terminal: Terminal, n: int) -> None:
    """A little of everything that a terminal does."""
    async with await terminal.session() as session:
        await session.run(f"x={n}; f() {{ echo $x; }}; f")
        await session.run("cat", stdin=b"input")
        await session.run("sleep 0.01 & exit 3")
        await session.run("echo $x", cwd="/", env={"A": "b"})
        await session.run("sleep 9", timeout=0.05, grace_s=0.05)
        await session.run("kill -9 $$")
        await session.run("cat & echo bg")
    await terminal.run(["sh", "-c", "sleep 0.01 &"])
    await terminal.run(["sh", "-c", "sleep 9"], timeout=0.05, grace_s=0.05)
    await terminal.run(["no-such-program"])
    await terminal.run(["cat"], stdin=bytes(100_000))
    async with terminal.stream(["cat", "/dev/zero"], grace_s=0.05) as stream:
        await anext(stream)
    await terminal.run("seq 1 10000", max_output=100)


def grew(before: Holdings, after: Holdings, room: int = 8 * MIB) -> None:
    """Fail when something grew that should not, memory by more than ``room`` bytes."""
    assert after.ours <= before.ours
    assert after.theirs <= before.theirs
    assert after.processes <= before.processes
    assert after.files <= before.files
    assert after.memory <= before.memory + room


@thorough
def test_a_little_of_everything_leaves_nothing_behind(place: SuiteTarget) -> None:
    async def work() -> tuple[Holdings, Holdings]:
        terminal = await place.get_shared_terminal()
        # All helpers that are kept: one that a program left something below is replaced by one of these, not a new one.
        await asyncio.gather(*(terminal.run(["sleep", "0.2"]) for _ in range(8)))
        for n in range(4):
            await turn(terminal, n)
        before = await holdings(terminal)
        for n in range(12):
            await turn(terminal, n)
        return before, await holdings(terminal)

    # What streams had on their way when they were left differs by some windows; twelve that leaked are more.
    grew(*place.run(work(), 60), room=24 * MIB)


def test_a_hundred_commands_at_once_leave_nothing_behind(place: SuiteTarget) -> None:
    async def work() -> tuple[Holdings, Holdings]:
        terminal = await place.get_shared_terminal()

        async def one(n: int) -> None:
            result = await terminal.run(["sh", "-c", f"sleep 0.2; echo {n}; exit {n}"])
            assert (result.stdout, result.exit_code) == (b"%d\n" % n, n)

        await asyncio.gather(*(one(n) for n in range(8)))
        before = await holdings(terminal)
        await asyncio.gather(*(one(n) for n in range(100)))
        return before, await holdings(terminal)

    grew(*place.run(work(), 60))


def test_programs_that_left_something_give_their_helper_back(place: SuiteTarget) -> None:
    async def work() -> tuple[Holdings, Holdings]:
        terminal = await place.get_shared_terminal()
        await terminal.run(["true"])
        before = await holdings(terminal)
        for _ in range(60):
            await terminal.run(["sh", "-c", "sleep 0.02 &"])
        await asyncio.sleep(0.1)
        for _ in range(60):
            await terminal.run(["true"])
        return before, await holdings(terminal)

    before, after = place.run(work(), 60)
    assert after.processes <= before.processes + 8


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_ten_thousand_commands_leave_nothing_behind(place: SuiteTarget) -> None:
    async def work() -> tuple[Holdings, Holdings]:
        terminal = await place.get_shared_terminal()
        for n in range(500):
            await terminal.run(f"x={n}; echo $x")
            await terminal.run(["true"])
        before = await holdings(terminal)
        for n in range(10_000):
            assert (await terminal.run(f"x={n}; echo $x")).stdout == b"%d\n" % n
            if n % 10 == 0:
                await terminal.run(["echo", str(n)])
        return before, await holdings(terminal)

    grew(*place.run(work(), 800))
