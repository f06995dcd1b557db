"""Sessions whose folder is not what it was: no command waits for ever, and none that was refused runs later."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import PlaceError
from hermes_exec.testing.place import link

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from hermes_exec.terminal.session import Session
    from hermes_exec.testing import SuiteTarget

pytestmark = pytest.mark.parametrize("shell", ["/bin/bash", "/bin/sh"])


@asynccontextmanager
async def opened(place: SuiteTarget, shell: str) -> AsyncGenerator[tuple[Session, Path]]:
    """A session, and where it has its state: the only folder of the guest that holds a status folder."""
    async with place.fresh() as terminal, await terminal.session(shell=shell) as session:
        await session.run("true")
        (folder,) = (path.parent for path in Path(str(link(terminal).guest["folder"])).glob("*/s"))
        yield session, folder


@contextmanager
def taken_away(folder: Path) -> Generator[None]:
    """For a while, and then it is back."""
    away = folder.rename(folder.with_name("away"))
    yield
    away.rename(folder)


async def refused(session: Session, command: str, stdin: str | None = None) -> None:
    with pytest.raises(PlaceError, match="No such file"):
        await session.run(command, timeout=10, stdin=stdin)


def test_commands_that_wait_behind_the_one_that_removed_it_are_refused(place: SuiteTarget, shell: str) -> None:
    async def remove() -> None:
        async with opened(place, shell) as (session, folder):
            first = asyncio.ensure_future(session.run(f"rm -rf {folder}"))
            await asyncio.gather(*(refused(session, "echo on") for _ in range(3)))
            await first
            await refused(session, "echo on")

    place.run(remove(), 30)


def test_a_command_that_was_refused_does_not_run_once_the_folder_is_back(
    place: SuiteTarget, shell: str, tmp_path: Path
) -> None:
    async def move() -> None:
        async with opened(place, shell) as (session, folder):
            with taken_away(folder):
                if shell == "/bin/bash":  # which is told short commands without a file
                    await session.run("exit 1")
                for _ in range(3):
                    await refused(session, f"echo refused >> {tmp_path}/trace")
            assert (await session.run(f"echo ran >> {tmp_path}/trace")).ok

    place.run(move(), 30)
    assert (tmp_path / "trace").read_text() == "ran\n"


def test_a_command_whose_input_cannot_be_prepared_is_refused_and_the_next_runs(
    place: SuiteTarget, shell: str, tmp_path: Path
) -> None:
    async def move() -> None:
        async with opened(place, shell) as (session, folder):
            with taken_away(folder):
                await refused(session, f"cat > {tmp_path}/read", stdin="words")
            assert (await session.run("cat", stdin="words")).stdout == b"words"

    place.run(move(), 30)
    assert not (tmp_path / "read").exists()


def test_what_is_left_in_the_background_stops_no_later_command(place: SuiteTarget, shell: str) -> None:
    """The next command would get pipes of its own, which are made in the folder."""

    async def move() -> None:
        async with opened(place, shell) as (session, folder):
            (folder / "o1").mkdir()  # where the pipe would be
            await session.run("sleep 60 &")
            result = await session.run("echo on", timeout=10)
            assert result.stdout == b"on\n"
            assert "background" in result.note

    place.run(move(), 30)
