"""A process of ours is killed: what cannot be known is said to be unknown, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import HermesError, OutcomeUnknown, PlaceError, PlaceUnavailable
from hermes_exec.result import ShellState
from hermes_exec.testing.place import count_living, link, marker, wait_until
from tests.faults.rig import folders_of, gone, guest_pid, kill, reaped, written
from tests.rigs.processes import parent, tree

if TYPE_CHECKING:
    from hermes_exec import Terminal
    from hermes_exec.testing import SuiteTarget


def test_when_the_guest_is_killed_all_is_unknown_and_nothing_is_left(place: SuiteTarget, tmp_path: Path) -> None:
    mark = marker()

    async def die() -> None:
        async with place.fresh() as terminal:
            hide = f"setsid sh -c '(trap \"\" TERM HUP INT; sleep {mark} &) ; sleep {mark} &' <&- >&- 2>&- &"
            await terminal.run(hide)
            await terminal.run(["sh", "-c", hide])
            in_flight = [
                asyncio.ensure_future(terminal.run(["sh", "-c", f"echo ran >> {tmp_path}/trace; exec sleep {mark}"])),
                asyncio.ensure_future(terminal.run(f"echo ran >> {tmp_path}/trace; sleep {mark}")),
            ]
            await wait_until(lambda: _lives(terminal, mark, 6))
            guest = await guest_pid(terminal)
            processes = tree(parent(guest))
            assert len(processes) > 8
            kill(guest)
            for one in in_flight:
                with pytest.raises(OutcomeUnknown) as caught:
                    await one
                assert "unknown" in caught.value.state
            for later in (
                terminal.run(["true"]),
                terminal.run("true"),
                terminal.session(),
                _stream_to_end(terminal),
            ):
                with pytest.raises(PlaceUnavailable, match="the guest was lost before") as refused:
                    await later
                assert refused.value.state == "nothing ran"
            await gone(processes)
            assert not [folder for folder in folders_of(terminal) if folder.exists()]
        assert (tmp_path / "trace").read_text() == "ran\nran\n"

    place.run(die(), 30)


async def _stream_to_end(terminal: Terminal) -> None:
    async with terminal.stream("true") as stream:
        await stream.result()


async def _lives(terminal: Terminal, mark: str, count: int) -> bool:
    return await count_living(terminal, mark) == count


def test_when_the_keeper_is_killed_closing_still_leaves_nothing(place: SuiteTarget) -> None:
    mark = marker()

    async def die() -> None:
        async with place.fresh() as terminal:
            await terminal.run(f"sleep {mark} &")
            guest = await guest_pid(terminal)
            processes = tree(guest)
            kill(parent(guest))
            assert (await terminal.run("echo well", timeout=20)).stdout == b"well\n"
            folders = folders_of(terminal)
        await gone(processes)
        assert not [folder for folder in folders if folder.exists()]

    place.run(die(), 30)


def test_a_shell_killed_while_it_is_idle_is_replaced_and_that_is_told(place: SuiteTarget) -> None:
    async def die() -> None:
        terminal = await place.get_shared_terminal()
        async with await terminal.session() as session:
            mark = marker()
            pid = int((await session.run(f"kept=1; mark={mark}; echo $$")).stdout)
            await written(terminal, mark.encode())
            kill(pid)
            await reaped(pid)  # or the guest may take what comes next for what the shell died of
            result = await session.run("echo $kept")
            assert result.stdout == b"1\n"
            assert result.shell is ShellState.ROLLED_BACK

    place.run(die())


def test_a_shell_killed_while_it_runs_a_command_ends_that_one_alone(place: SuiteTarget) -> None:
    async def die() -> None:
        terminal = await place.get_shared_terminal()
        async with await terminal.session() as session, await terminal.session() as other:
            mark = marker()
            pid = int((await session.run(f"kept=1; mark={mark}; echo $$")).stdout)
            await written(terminal, mark.encode())
            async with session.stream("echo in; sleep 60") as stream:
                assert (await anext(stream)).data == b"in\n"
                kill(pid)
                result = await stream.result()
                assert (result.exit_code, result.signal, result.shell) == (None, 9, ShellState.ROLLED_BACK)
                assert (await session.run("echo $kept")).stdout == b"1\n"
                assert (await other.run("echo well")).stdout == b"well\n"

    place.run(die())


def test_the_state_of_an_idle_shell_is_written_down_though_another_is_busy(place: SuiteTarget) -> None:
    async def keep_busy() -> None:
        terminal = await place.get_shared_terminal()
        async with await terminal.session() as session, await terminal.session() as other:
            mark = marker()
            await session.run(f"mark={mark}")
            done = asyncio.ensure_future(written(terminal, mark.encode()))
            while not done.done():
                await other.run("true")
            await done

    place.run(keep_busy(), 30)


def test_a_program_that_kills_its_parent_harms_no_other(place: SuiteTarget) -> None:
    async def die() -> None:
        terminal = await place.get_shared_terminal()
        result = await terminal.run(["sh", "-c", "kill -9 $PPID; sleep 0.2"], timeout=10)
        assert not result.ok
        for n in range(5):
            assert (await terminal.run(["echo", str(n)], timeout=10)).stdout == b"%d\n" % n

    place.run(die())


def test_idle_helpers_that_are_killed_are_replaced(place: SuiteTarget) -> None:
    async def die() -> None:
        terminal = await place.get_shared_terminal()
        for _ in range(3):
            asked = (terminal.run(["sh", "-c", "sleep 0.05; echo $PPID"]) for _ in range(4))
            runners = {int(result.stdout) for result in await asyncio.gather(*asked)}
            for pid in runners:
                kill(pid)
            await gone(runners)
            asked = (terminal.run(["echo", "well"], timeout=10) for _ in range(6))
            for result in await asyncio.gather(*asked):
                assert result.stdout == b"well\n"

    place.run(die())


ORCHESTRATOR = """
import asyncio, sys
import hermes_exec
from hermes_exec.testing.place import link
from hermes_exec_backends.local import LocalBackend

async def main():
    terminal = await hermes_exec.open(LocalBackend(), lease_s=float(sys.argv[2]), audit=False)
    mark = sys.argv[1]
    await terminal.run("sleep %s & setsid sleep %s &" % (mark, mark))
    asyncio.ensure_future(terminal.run(["sh", "-c", "sleep %s" % mark]))
    asyncio.ensure_future(terminal.run("seq 1 10000000; sleep %s" % mark))
    await asyncio.sleep(0.3)
    print(link(terminal).guest["folder"], flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_when_the_orchestrator_is_killed_nothing_is_left_after_the_lease(place: SuiteTarget) -> None:
    mark = marker()
    path = ":".join(entry for entry in sys.path if entry)
    orchestrator = subprocess.Popen(
        [sys.executable, "-c", ORCHESTRATOR, mark, "1.0"],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    with orchestrator:
        assert orchestrator.stdout is not None
        folder = Path(orchestrator.stdout.readline().strip())
        orchestrator.kill()

    async def see() -> None:
        terminal = await place.get_shared_terminal()
        assert folder.exists()
        assert await count_living(terminal, mark) >= 3  # it goes on for the length of the lease
        await wait_until(lambda: _lives(terminal, mark, 0), 15)
        await wait_until(lambda: _is_gone(folder))
        assert not (Path("/var/tmp") / folder.name).exists()

    place.run(see(), 30)


async def _is_gone(folder: Path) -> bool:
    return not folder.exists()


def test_a_command_that_ends_within_the_lease_is_not_ended_by_it(place: SuiteTarget, tmp_path: Path) -> None:
    async def leave() -> None:
        terminal = await place.get_shared_terminal()
        async with place.fresh(lease_s=3.0) as leaving:
            asyncio.ensure_future(
                leaving.run(["sh", "-c", f"sleep 0.5; echo done > {tmp_path}/trace"])
            ).add_done_callback(lambda task: task.exception())
            await asyncio.sleep(0.2)
            guest = await guest_pid(leaving)
            processes = tree(parent(guest))
            link(leaving).detach()
        terminal = await place.get_shared_terminal()
        await gone(processes)
        assert (tmp_path / "trace").read_text() == "done\n"
        assert (await terminal.run(["true"])).ok

    place.run(leave(), 30)


def test_without_our_folder_sessions_end_plainly_and_programs_go_on(place: SuiteTarget) -> None:
    async def remove() -> None:
        async with place.fresh() as terminal, await terminal.session() as session:
            await session.run("kept=1")
            folder = str(link(terminal).guest["folder"])
            again = 'rm -rf "$1" || rm -rf "$1"'  # the guest may create a file in it meanwhile
            await terminal.run(["sh", "-c", again, "sh", folder], check=True)
            with pytest.raises(PlaceError, match="No such file"):  # noqa: PT012  whichever notices
                for _ in range(3):
                    await session.run("echo $kept", timeout=10)
            assert (await terminal.run(["echo", "well"])).stdout == b"well\n"
            async with await terminal.session() as other:
                assert (await other.run("echo well")).stdout == b"well\n"

    place.run(remove())


def test_a_guest_on_a_machine_that_was_started_anew_is_gone(place: SuiteTarget) -> None:
    async def reboot() -> None:
        async with place.fresh(lease_s=0.5) as terminal:
            processes = tree(parent(await guest_pid(terminal)))
            running = asyncio.ensure_future(terminal.run(["sleep", "60"]))
            await asyncio.sleep(0.05)
            link(terminal).guest["boot"] = "another"
            link(terminal).break_connection()
            with pytest.raises(OutcomeUnknown, match="rebooted since"):
                await running
        await gone(processes)

    place.run(reboot(), 30)


def test_another_machine_behind_the_same_name_is_an_error_that_names_the_right_one(place: SuiteTarget) -> None:
    async def move() -> None:
        async with place.fresh(lease_s=0.5) as terminal:
            processes = tree(parent(await guest_pid(terminal)))
            link(terminal).guest["host"] = "the-right-host"
            link(terminal).break_connection()
            with pytest.raises(HermesError, match="the-right-host"):
                await terminal.run(["true"])
        await gone(processes)

    place.run(move(), 30)
