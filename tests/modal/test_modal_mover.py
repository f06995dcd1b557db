"""Large files by an exec of their own, which leaves nothing behind and is done without where it fails."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.rigs.breadth import leave_out

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec.terminal.terminal import Terminal
    from tests.modal.conftest import Opened
    from tests.rigs.apart import Apart

leave_out("takes long")

SIZE = 9_000_000
STREAM = "TaskExecStdinWriteStream"
LEFT = "ls -d /var/tmp/hx-*/inflow-* /tmp/hx-*/inflow-* /srv/.hx-* 2>/dev/null; true"
HELPERS = r"""
for each in /proc/[0-9]*; do
  read -r name 2>/dev/null <$each/comm && [ "$name" = cat ] && echo $each
done; true
"""


async def until_no_helper_runs(terminal: Terminal) -> None:
    """Return once no program that moved a file is there any more; waits for less than the test has."""
    while (await terminal.run(["sh", "-c", HELPERS])).stdout:
        await asyncio.sleep(0.05)


async def moved_up(terminal: Terminal, by: str, source: Path) -> None:
    """Send that file to /srv/file, by either way."""
    if by == "write":
        await terminal.write("/srv/file", source.read_bytes())
    else:
        await terminal.upload(source, "/srv/file")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file that is worth a stream of its own."""
    file = tmp_path / "file"
    file.write_bytes(os.urandom(SIZE))
    return file


@pytest.mark.parametrize("generation", ["v1", "v2"])
def test_a_large_file_goes_and_comes_by_streams_of_its_own(
    run: Any, server: Apart, opened: Opened, source: Path, tmp_path: Path, generation: str
) -> None:
    async def work() -> None:
        async with opened(lease_s=600.0, generation=generation) as terminal:  # its renewals are execs too
            server.call("forget_calls")
            for by in ("write", "upload"):
                await moved_up(terminal, by, source)
                assert await terminal.read("/srv/file") == source.read_bytes()
            await terminal.download("/srv/file", tmp_path / "again")
            assert (tmp_path / "again").read_bytes() == source.read_bytes()
            calls: dict[str, int] = server.call("calls")
            assert (calls[STREAM], calls["TaskExecStart"]) == (2, 5)
            assert (await terminal.run(LEFT)).stdout == b""
            await until_no_helper_runs(terminal)

    run(work())


@pytest.mark.parametrize("how", ["status", "rst"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_upload_whose_stream_breaks_arrives_whole(
    run: Any, server: Apart, opened: Opened, source: Path, when: str, how: str
) -> None:
    async def work() -> None:
        async with opened() as terminal:
            server.call("fail", STREAM, how=how, when=when)
            await terminal.upload(source, "/srv/file")
            assert await terminal.read("/srv/file") == source.read_bytes()
            assert (await terminal.run(LEFT)).stdout == b""
            await until_no_helper_runs(terminal)

    run(work())


@pytest.mark.parametrize("by", ["write", "upload"])
def test_little_is_sent_into_a_connection_that_broke(
    run: Any, server: Apart, opened: Opened, source: Path, caplog: pytest.LogCaptureFixture, by: str
) -> None:
    async def work() -> None:
        async with opened() as terminal:
            server.call("fail", STREAM, how="rst")
            await moved_up(terminal, by, source)

    run(work())
    assert caplog.text.count("socket.send() raised exception") < 32  # a part of 256 KiB is 16 frames


@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
def test_without_an_exec_of_its_own_a_file_goes_by_the_link(
    run: Any, server: Apart, opened: Opened, source: Path, up: bool
) -> None:
    async def work() -> None:
        async with opened() as terminal:
            if not up:
                await terminal.upload(source, "/srv/file")
            server.call("fail", "TaskExecStart", status="RESOURCE_EXHAUSTED", message="no more execs", times=99)
            if up:
                await terminal.upload(source, "/srv/file")
            assert await terminal.read("/srv/file") == source.read_bytes()

    run(work())


@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
def test_a_cancelled_transfer_leaves_the_old_file_and_no_program(
    run: Any, opened: Opened, source: Path, tmp_path: Path, up: bool
) -> None:
    goal = tmp_path / "goal"
    goal.write_bytes(b"old")

    async def work() -> None:
        async with opened() as terminal:
            await terminal.write("/srv/file", b"old")
            await terminal.run("truncate -s 400M /srv/large")
            begun = asyncio.Event()

            def begin(*_: int) -> None:
                begun.set()

            with source.open("ab") as file:
                file.truncate(400 << 20)
            move = terminal.files.upload(source, "/srv/file", progress=begin) if up else None
            transfer = asyncio.ensure_future(move or terminal.files.download("/srv/large", goal, progress=begin))
            await begun.wait()
            transfer.cancel()
            with pytest.raises(asyncio.CancelledError):
                await transfer
            assert await terminal.read("/srv/file") == b"old"
            await until_no_helper_runs(terminal)

    run(work())
    assert goal.read_bytes() == b"old"
