"""The guest runs under every Python from 3.6 on: each interpreter that is found here is tried."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.result import ShellState
from hermes_exec.testing import Conformance, SuiteTarget
from hermes_exec.testing.place import count_living, link, marker
from tests.rigs.breadth import thorough
from tests.rigs.pythons import OtherPython

if TYPE_CHECKING:
    from hermes_exec.backend import Backend

VERSIONS = [f"3.{minor}" for minor in range(6, 15)]
LISTED = os.environ.get("HERMES_EXEC_PYTHONS", "").split(os.pathsep)  # before the tests hide such variables
PYENV = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.*/bin/python3"))


def version_of(python: str) -> str:
    """``3.11`` for an interpreter that can be run, else nothing."""
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        asked = subprocess.run([python, "-ISc", ask], capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return ""
    return asked.stdout.strip()


def find(version: str) -> str:
    """An interpreter of that version, or nothing."""
    candidates = [*LISTED, *map(str, PYENV), shutil.which(f"python{version}") or "", "/usr/bin/python3"]
    for candidate in candidates:
        named = version in candidate or candidate == "/usr/bin/python3" or candidate in LISTED
        if candidate and named and version_of(candidate) == version:
            return candidate
    return ""


def find_oldest() -> str:
    """The interpreter of the oldest version that is here, or nothing."""
    return next((python for version in VERSIONS if (python := find(version))), "")


@thorough
class TestOldestPython(Conformance):
    """Every behaviour of the guest, under the oldest Python that is here."""

    @pytest.fixture
    def backend(self) -> Backend:
        return OtherPython(find_oldest())


@pytest.fixture(scope="module", params=[pytest.param(version, marks=thorough) for version in VERSIONS])
def place(request: pytest.FixtureRequest) -> Generator[SuiteTarget]:
    python = find(request.param)
    if not python:
        pytest.skip(f"no Python {request.param} here; HERMES_EXEC_PYTHONS=/path/to/python{request.param} names one")
    place = SuiteTarget(OtherPython(python), "guest")
    assert str(link(place.run(place.get_shared_terminal())).guest["python"]).startswith(f"{request.param}.")
    yield place
    place.close()


def test_commands_run_and_end_as_they_should(place: SuiteTarget) -> None:
    async def run() -> None:
        terminal = await place.get_shared_terminal()
        result = await terminal.run(["sh", "-c", "cat; echo err >&2; exit 3"], stdin=b"\xff\0in")
        assert (result.stdout, result.stderr, result.exit_code) == (b"\xff\0in", b"err\n", 3)
        assert (await terminal.run(["no-such-program"])).exit_code == 127
        assert (await terminal.run(["sh", "-c", "kill -2 $$; sleep 5"])).signal == 2
        data = os.urandom(6_000_000)
        assert (await terminal.run(["cat"], stdin=data)).stdout == data
        results = await asyncio.gather(*(terminal.run(["sh", "-c", f"sleep 0.1; exit {n}"]) for n in range(12)))
        assert [result.exit_code for result in results] == list(range(12))

    place.run(run())


def test_sessions_keep_their_state(place: SuiteTarget) -> None:
    async def run() -> None:
        terminal = await place.get_shared_terminal()
        async with await terminal.session() as session:
            await session.run("x='a b'; f() { echo f $x; }; cd /usr")
            assert (await session.run("exit 4")).shell is ShellState.RESTORED
            assert (await session.run("f; pwd")).stdout == b"f a b\n/usr\n"
            assert (await session.run("kill -9 $$")).signal == 9
            assert (await session.run("f; cat", stdin="in")).stdout == b"f a b\nin"
            assert (await session.run(f": {'x' * 300_000}; echo long")).stdout == b"long\n"
            await session.run("read() { :; }")
            assert (await session.run("echo well")).stdout == b"well\n"

    place.run(run())


@pytest.mark.parametrize("way", ["text", "words"])
def test_nothing_survives_a_time_limit(place: SuiteTarget, way: str) -> None:
    async def run() -> None:
        terminal = await place.get_shared_terminal()
        mark = marker()
        text = f"(setsid sh -c 'trap \"\" TERM; (sleep {mark} &); sleep {mark}' &); sleep {mark}"
        result = await terminal.run(text if way == "text" else ["sh", "-c", text], timeout=0.4, grace_s=0.1)
        assert result.timed_out
        assert await count_living(terminal, mark) == 0

    place.run(run())


def test_a_broken_connection_is_replaced(place: SuiteTarget) -> None:
    async def run() -> None:
        terminal = await place.get_shared_terminal()
        async with terminal.stream(["seq", "1", "300000"]) as stream:
            seen = (await anext(stream)).data
            link(terminal).break_connection()
            seen += b"".join([event.data async for event in stream])
            assert seen == b"".join(b"%d\n" % n for n in range(1, 300_001))

    place.run(run())


def test_every_part_can_be_used(place: SuiteTarget, tmp_path: Path) -> None:
    async def run() -> None:
        terminal = await place.get_shared_terminal()
        await terminal.write(str(tmp_path / "file"), b"content")
        assert await terminal.read(str(tmp_path / "file")) == b"content"
        job = await terminal.start("echo from a job")
        assert (await job.wait()).exit_code == 0
        await job.prune()  # or its log would keep the guest
        async with await terminal.pty(["cat"]) as pty:
            await pty.write(b"typed\n")
            seen = b""
            while b"typed" not in seen:
                seen += await pty.read()
        assert (await terminal.limits()) is not None

    place.run(run())


def test_closing_leaves_nothing(place: SuiteTarget) -> None:
    async def run() -> None:
        mark = marker()
        async with place.fresh() as terminal:
            await terminal.run(f"setsid sleep {mark} & sleep {mark} &")
            folder = Path(str(link(terminal).guest["folder"]))
            assert folder.exists()
        assert not folder.exists()
        assert await count_living(await place.get_shared_terminal(), mark) == 0

    place.run(run())
