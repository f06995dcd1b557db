"""Orphans of every kind that a guest can leave when it is killed together with its keeper."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING

import pytest

import hermes_exec
from hermes_exec.testing.place import marker, wait_until
from tests.rigs.processes import argv, started_as, with_mark

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec import Result, Terminal
    from hermes_exec.backend import Backend

_PARENT = "IFS= read -r line </proc/$1/stat; set -- ${line##*) }; echo $2"


async def _parent(terminal: Terminal, pid: str) -> str:
    return (await terminal.run(["sh", "-c", _PARENT, "sh", pid], check=True)).stdout_text.strip()


async def _leave_orphans(terminal: Terminal, mark: str) -> int:
    """Start orphans in every way; gives how many processes with ``mark`` stay when all commands have ended or wait."""
    left = f"setsid sleep {mark}"
    idle, gone, replaced, busy, ending, trapping = [await terminal.session() for _ in range(6)]
    await idle.run(f"{left} & ({left} &); env -i $(command -v setsid) $(command -v sleep) {mark} &")  # 3
    await gone.run(f"({left} &) ; exit 3")  # 1: it becomes the guest's own child
    await replaced.run(f"{left} &")  # 1
    await trapping.run(f"trap : EXIT; {left} &")  # 1
    await terminal.run(["sh", "-c", f"({left} &) ; {left} &"])  # 2
    await terminal.start(f"({left} &) ; sleep {mark}")  # 2
    for session, command in ((busy, f"sleep {mark}"), (ending, f"sleep 2.{mark}; exit 4")):  # 2 and 1, twice
        text = f"({left} &) ; {command}"
        for run in (session.run(text), terminal.run(["sh", "-c", text])):
            asyncio.ensure_future(run).add_done_callback(_ignore)
    asyncio.ensure_future(replaced.run(f"exec sleep {mark}")).add_done_callback(_ignore)  # 1
    return 3 + 1 + 1 + 1 + 2 + 2 + 2 * (2 + 1) + 1


def _ignore(task: asyncio.Future[Result]) -> None:
    if not task.cancelled():
        task.exception()


async def check_next_guest_ends_orphans(new_backend: Callable[[], Backend]) -> None:
    """Kill a guest with its keeper, and look at what the next guest of the same user ends and what it leaves alone."""
    mark, other = marker(), marker()
    stranger = await asyncio.create_subprocess_exec("setsid", "sleep", other)
    terminal = await hermes_exec.open(new_backend(), audit=False)
    try:
        expected = await _leave_orphans(terminal, mark)
        assert expected >= 10

        def count() -> int:
            return len([pid for pid in with_mark(mark) if argv(pid)[1:] == [mark.encode()]])

        async def all_there() -> bool:
            return count() == expected

        await wait_until(all_there, 30)
        runner = (await terminal.run(["sh", "-c", "echo $PPID"])).stdout_text.strip()
        guest = await _parent(terminal, runner)
        keeper = await _parent(terminal, guest)
        kill = f"kill -STOP {keeper}; kill -KILL {guest} {keeper}"
        with pytest.raises(hermes_exec.HermesError):  # the guest is gone
            await asyncio.wait_for(terminal.run(["sh", "-c", kill]), 30)

        async def ending_over() -> bool:
            return not started_as("sleep", f"2.{mark}")

        await wait_until(ending_over, 30)

        async with hermes_exec.open(new_backend(), audit=False) as following:
            await following.run("true")

        async def none_left() -> bool:
            return count() == 0

        await wait_until(none_left, 30)
        assert stranger.returncode is None
        assert started_as("sleep", other) == [stranger.pid]
    finally:
        for pid in with_mark(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        stranger.kill()
        await stranger.wait()
        with contextlib.suppress(hermes_exec.HermesError):
            await terminal.close()
