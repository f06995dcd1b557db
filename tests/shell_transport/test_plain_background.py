"""Children in the background that hold a command's outputs, in a place that tells of the command's own end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.testing.place import wait_until

if TYPE_CHECKING:
    from hermes_exec.backend import Backend
    from hermes_exec.terminal.terminal import Terminal

Plain = Callable[..., None]


def test_the_result_does_not_wait_for_them_and_has_all_that_the_command_wrote(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        assert terminal.capabilities.background
        result = await terminal.run("sleep 1000 & head -c 3000000 /dev/zero; echo $! >&2; exit 3")
        assert (result.exit_code, len(result.stdout)) == (3, 3_000_000)
        os.kill(int(result.stderr), signal.SIGKILL)

    plain(scenario)


def test_they_write_on_and_what_they_write_reaches_nobody(plain: Plain, tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        child = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; head -c 3000000 /dev/zero; echo >{tmp_path}/wrote"
        first = await terminal.run(f"({child}) & echo first")
        assert first.stdout == b"first\n"
        (tmp_path / "go").touch()
        await wait_until(lambda: _is_there(tmp_path / "wrote"), 20)
        assert (await terminal.run("echo second")).stdout == b"second\n"

    plain(scenario)


async def _is_there(path: Path) -> bool:
    return path.exists()


def test_a_slow_reader_still_gets_everything_first(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        got = 0
        async with terminal.stream("sleep 1000 & head -c 20000000 /dev/zero; echo $! >&2") as stream:
            async for event in stream:
                if event.kind == "stderr":
                    os.kill(int(event.data), signal.SIGKILL)
                elif event.result is None:
                    got += len(event.data)
                    await asyncio.sleep(0)
        assert got == 20_000_000

    plain(scenario)


def test_where_no_exit_is_told_they_hold_up_the_result(plain: Plain, silent: Backend) -> None:
    async def scenario(terminal: Terminal) -> None:
        assert not terminal.capabilities.background
        result = await terminal.run("sleep 1 & echo started")
        assert result.stdout == b"started\n"
        assert result.duration_s >= 0.9

    plain(scenario, silent)
