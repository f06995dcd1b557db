"""A sandbox's kernel is not Linux itself: what it may lack is denied here, and what is promised still holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.testing.place import count_living, marker, wait_until
from tests.conftest import require_part
from tests.rigs import denial

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.modal.conftest import Opened
    from tests.rigs.apart import Apart

LACKS: dict[str, tuple[tuple[denial.Rule, ...], bool]] = {
    "subreaper": ((denial.SUBREAPER,), False),
    "pidfd": (denial.PIDFD, False),
    "children files": ((), True),
    "unix sockets": ((denial.UNIX_SOCKETS,), False),
}
"""What a filter denies, and whether there are no /proc/PID/task/TID/children."""
LOOK = """
import ctypes, os, socket
lacks = set()
if ctypes.CDLL(None).prctl(36, 1, 0, 0, 0):
    lacks.add("subreaper")
try:
    os.pidfd_open(os.getpid())
except OSError:
    lacks.add("pidfd")
try:
    open("/proc/self/task/%d/children" % os.getpid()).close()
except FileNotFoundError:
    lacks.add("children files")
try:
    socket.socket(socket.AF_UNIX)
except OSError:
    lacks.add("unix sockets")
print(*sorted(lacks), sep=", ")
"""


@pytest.fixture(params=LACKS)
def lacking(request: pytest.FixtureRequest, server: Apart) -> Generator[str]:
    """What the kernel of new sandboxes lacks."""
    require_part("x86-64", denial.why_not(), usable=not denial.why_not())
    rules, childless = LACKS[request.param]
    server.call("seccomp", denial.program(*rules), childless=childless)
    yield request.param
    server.call("seccomp", b"")


def test_what_is_lacking_is_lacking(run: Any, lacking: str, opened: Opened) -> None:
    async def work() -> None:
        async with opened(carrier="plain") as terminal:
            looked = await terminal.run(["python3", "-c", LOOK], check=True)
        assert looked.stdout_text.strip() == lacking

    run(work())


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


def test_a_timeout_ends_the_tree(run: Any, lacking: str, opened: Opened) -> None:
    async def work() -> None:
        async with opened() as terminal:
            mark = marker()
            result = await terminal.run(f"trap '' TERM; sleep {mark} & sleep {mark}", timeout=1.0, grace_s=0.2)
            assert result.timed_out

            async def gone() -> bool:
                return await count_living(terminal, mark) == 0

            await wait_until(gone)

    run(work())


def test_a_timeout_ends_what_left_the_tree_or_that_is_not_promised(run: Any, lacking: str, opened: Opened) -> None:
    async def work() -> None:
        async with opened() as terminal:
            assert terminal.capabilities.kill_tree is (lacking not in {"subreaper", "unix sockets"})
            if not terminal.capabilities.kill_tree:
                return
            mark = marker()
            command = f"(setsid sh -c 'sleep {mark} & exit' &); sleep {mark}"
            assert (await terminal.run(command, timeout=1.0, grace_s=0.2)).timed_out

            async def gone() -> bool:
                return await count_living(terminal, mark) == 0

            await wait_until(gone)

    run(work())


def test_an_earlier_child_outlives_a_time_limit_and_ends_with_its_session_where_that_is_promised(
    run: Any, lacking: str, opened: Opened
) -> None:
    async def work() -> None:
        async with opened() as terminal:
            if not terminal.capabilities.sessions:
                return
            mark = marker()
            session = await terminal.session()
            await session.run(f"sleep {mark} &")
            assert (await session.run("sleep 1000", timeout=0.5, grace_s=0.1)).timed_out
            assert await count_living(terminal, mark) == 1
            await session.close()
            if not terminal.capabilities.kill_tree:
                return

            async def gone() -> bool:
                return await count_living(terminal, mark) == 0

            await wait_until(gone)

    run(work())


def test_files_go_up_and_down(run: Any, lacking: str, opened: Opened) -> None:
    async def work() -> None:
        data = bytes(range(256)) * 5000
        async with opened() as terminal:
            await terminal.write("/srv/file", data)
            assert await terminal.read("/srv/file") == data

    run(work())
