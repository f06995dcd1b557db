"""A sandbox's kernel is not Linux itself: what it may lack is denied here, and what is promised still holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.testing.place import living, marker, until
from tests.conftest import require_part
from tests.rigs import denial

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.modal.conftest import Opened
    from tests.rigs.apart import Apart

LACKS = {
    "subreaper": (denial.SUBREAPER,),
    "pidfd": denial.PIDFD,
    "both": (denial.SUBREAPER, *denial.PIDFD),
    "unix sockets": (denial.UNIX_SOCKETS,),
}


@pytest.fixture(params=LACKS)
def lacking(request: pytest.FixtureRequest, server: Apart) -> Generator[str]:
    """What the kernel of new sandboxes lacks."""
    require_part("x86-64", denial.why_not(), usable=not denial.why_not())
    server.call("seccomp", denial.program(*LACKS[request.param]))
    yield request.param
    server.call("seccomp", b"")


def test_commands_and_their_ends_are_told(run: Any, lacking: str, opened: Opened) -> None:
    async def work() -> None:
        async with opened() as terminal:
            for code in (0, 3, 255):
                result = await terminal.run(["sh", "-c", f"cat; echo err >&2; exit {code}"], stdin=b"in")
                assert (result.stdout, result.stderr, result.exit_code) == (b"in", b"err\n", code)

    run(work())


def test_state_is_kept_or_said_not_to_be(run: Any, lacking: str, opened: Opened) -> None:
    async def work() -> None:
        async with opened() as terminal:
            if not terminal.capabilities.sessions:
                assert lacking == "unix sockets"
                assert terminal.capabilities.carrier == "plain"
                return
            async with await terminal.session() as session:
                await session.run("cd /usr; export A=1")
                assert (await session.run("echo $PWD $A")).stdout == b"/usr 1\n"

    run(work())


def test_a_timeout_ends_the_tree_or_that_is_not_promised(run: Any, lacking: str, opened: Opened) -> None:
    async def work() -> None:
        async with opened() as terminal:
            mark = marker()
            result = await terminal.run(f"sleep {mark} & sleep {mark}", timeout=1.0, grace_s=0.2)
            assert result.timed_out
            if terminal.capabilities.kill_tree:

                async def gone() -> bool:
                    return await living(terminal, mark) == 0

                await until(gone)

    run(work())


def test_files_go_up_and_down(run: Any, lacking: str, opened: Opened) -> None:
    async def work() -> None:
        data = bytes(range(256)) * 5000
        async with opened() as terminal:
            await terminal.write("/srv/file", data)
            assert await terminal.read("/srv/file") == data

    run(work())
