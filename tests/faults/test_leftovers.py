"""What a guest left that was killed together with its keeper is removed by the next one, and nothing else is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hermes_exec
from hermes_exec.guest.core import orphan_cleanup
from hermes_exec.guest.core.process_tree import stat
from hermes_exec.testing.place import link, marker, wait_until
from hermes_exec_backends.local import LocalBackend
from tests.faults.rig import folders_of, gone, guest_pid, kill
from tests.rigs.orphans import check_next_guest_ends_orphans
from tests.rigs.processes import alive, argv, parent, tree

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from hermes_exec import Result, Terminal
    from hermes_exec.testing import SuiteTarget


async def opened() -> Terminal:
    return await hermes_exec.open(LocalBackend(), audit=False)


async def crash(terminal: Terminal, *, signed: bool = True) -> tuple[set[int], Path]:
    """Kill a busy guest with its keeper; gives what they left. Unsigned, nobody else may remove it."""
    mark = marker()
    await terminal.run(f"setsid sh -c '(trap \"\" TERM HUP; sleep {mark} &) ; sleep {mark} &' <&- >&- 2>&- &")
    asyncio.ensure_future(terminal.run(f"sleep {mark}")).add_done_callback(_looked_at)
    asyncio.ensure_future(terminal.run(["sleep", mark])).add_done_callback(_looked_at)
    guest = await guest_pid(terminal)
    keeper = parent(guest)
    await wait_until(lambda: _is_busy(guest, mark))
    folder = Path(str(link(terminal).guest["folder"]))
    if not signed:
        (folder / "home").unlink()
    left = tree(guest) - {guest}
    os.kill(keeper, signal.SIGSTOP)  # else it would clean up
    kill(guest)
    kill(keeper)
    await gone({guest, keeper})
    return left, folder


async def _is_busy(guest: int, mark: str) -> bool:
    """Whether both commands run, and the two that were left in the background."""
    return [argv(pid) for pid in tree(guest)].count([b"sleep", mark.encode()]) == 4


def _looked_at(task: asyncio.Future[Result]) -> None:
    if not task.cancelled():
        task.exception()


@contextlib.asynccontextmanager
async def _crashed(*, signed: bool = True) -> AsyncGenerator[tuple[set[int], Path]]:
    terminal = await opened()
    left, folder = await crash(terminal, signed=signed)
    try:
        yield left, folder
    finally:
        paths = [str(path) for path in folders_of(terminal) if path.exists()]
        orphan_cleanup.sweep({folder.name[3:]: paths} if paths else {})
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                kill(pid)
        with contextlib.suppress(hermes_exec.HermesError):
            await terminal.close()


def test_a_terminal_that_stays_open_removes_them(place: SuiteTarget) -> None:
    async def scenario() -> None:
        async with _crashed() as (left, folder), await opened() as terminal:
            await terminal.run("true")
            await gone(left, 20)
            await wait_until(lambda: _absent(folder), 20)

    place.run(scenario(), 55)


def test_a_terminal_that_is_closed_at_once_removes_them(place: SuiteTarget) -> None:
    async def scenario() -> None:
        async with _crashed() as (left, folder):
            async with await opened() as terminal:
                await terminal.run("true")
            await gone(left, 20)
            await wait_until(lambda: _absent(folder), 20)

    place.run(scenario(), 55)


def test_the_next_guest_ends_what_outlived_its_shell(place: SuiteTarget) -> None:
    place.run(check_next_guest_ends_orphans(LocalBackend), 140)


def test_a_recorded_pid_that_another_process_has_by_now_is_left_alone(pretended: Path) -> None:
    """Only the process with that start time is meant, and only on the machine that the record is of."""
    with subprocess.Popen(["sleep", marker()]) as ours, subprocess.Popen(["sleep", marker()]) as stranger:
        session = pretended / "0123abcd"
        session.mkdir()
        record = f"{ours.pid} {stat(ours.pid)[2]}\n{stranger.pid} {stat(stranger.pid)[2] - 1}\n"
        (session / "left").write_text(record)
        gone = {pretended.name[3:]: [str(pretended)]}
        try:
            (pretended / "home").symlink_to("another-boot pid:[1]")
            assert not _list_ended(orphan_cleanup.sweep(gone))
            assert ours.poll() is None
            session.mkdir(parents=True)
            (session / "left").write_text(record)
            orphan_cleanup.sign_folder(str(pretended))
            assert _list_ended(orphan_cleanup.sweep(gone)) == [ours.pid]
            assert ours.wait() == -signal.SIGKILL
            assert stranger.poll() is None
        finally:
            ours.kill()
            stranger.kill()
            pretended.mkdir(exist_ok=True)


def _list_ended(swept: list[tuple[str, list[int], str]]) -> list[int]:
    return [pid for _, pids, _ in swept for pid in pids]


async def _absent(folder: Path) -> bool:
    return not folder.exists()


def test_what_may_be_another_machines_is_left_alone(place: SuiteTarget) -> None:
    async def scenario() -> None:
        async with _crashed(signed=False) as (left, folder):
            (folder / "home").symlink_to("another-boot pid:[1]")
            assert folder.name[3:] not in orphan_cleanup.find_certain()
            (folder / "home").unlink()
            assert folder.name[3:] not in orphan_cleanup.find_certain()
            async with await opened() as terminal:
                await terminal.run("true")
            assert folder.exists()
            assert any(alive(pid) for pid in left)

    place.run(scenario(), 55)


def test_a_living_guest_that_answers_nobody_is_left_alone(place: SuiteTarget) -> None:
    async def scenario() -> None:
        async with await opened() as terminal:
            name = Path(str(link(terminal).guest["folder"])).name[3:]
            guest = await guest_pid(terminal)
            os.kill(guest, signal.SIGSTOP)
            try:
                with contextlib.ExitStack() as knocking:
                    for _ in range(40):  # more than wait at a door
                        knock = knocking.enter_context(socket.socket(socket.AF_UNIX))
                        knock.setblocking(False)
                        knock.connect_ex(f"{link(terminal).guest['folder']}/door")
                    assert name not in orphan_cleanup.find_certain()
                    assert not orphan_cleanup.is_gone(orphan_cleanup.guest_folders()[name])
            finally:
                os.kill(guest, signal.SIGCONT)
            assert (await terminal.run("echo well")).stdout == b"well\n"

    place.run(scenario())


@pytest.fixture
def pretended() -> Iterator[Path]:
    """A folder such as a guest has, at whose door nobody listens."""
    folder = Path(f"/tmp/hx-{os.urandom(8).hex()}")
    folder.mkdir(0o700)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(folder / "door"))
    yield folder
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def test_another_users_folder_is_left_alone(pretended: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can make a folder that is another user's")
    os.chown(pretended, 65534, -1)
    orphan_cleanup.sign_folder(str(pretended))
    assert pretended.name[3:] not in orphan_cleanup.guest_folders()
    assert pretended.name[3:] not in orphan_cleanup.find_certain()


def test_a_guest_that_only_starts_is_left_alone(pretended: Path) -> None:
    (pretended / "door").unlink()
    orphan_cleanup.sign_folder(str(pretended))
    assert pretended.name[3:] in orphan_cleanup.guest_folders()
    assert pretended.name[3:] not in orphan_cleanup.find_certain()
