"""A limit is of one command: nothing of it stays in the session, the runners or the machine."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hermes_exec.errors import HermesError, Unsupported
from hermes_exec.result import Result, ShellState
from hermes_exec.terminal.limits import Enforcer, Limits, query_enforcement
from hermes_exec.terminal.terminal import Terminal
from hermes_exec.transport.link import Link
from tests.rigs.breadth import leave_out

leave_out("takes long")

Scenario = Callable[[Terminal], Awaitable[None]]
InPlace = Callable[[str, Scenario], None]
Run = Callable[..., Awaitable[Result]]
LinkOf = Callable[[Terminal], Link]
Soon = Callable[[Callable[[], object]], Awaitable[None]]

ALL = Limits(cpu_s=5, memory_mib=128, processes=20, file_size_mib=1, open_files=64)


def groups(guest: int) -> set[Path]:
    """The control groups that a guest has made."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    found: set[Path] = set()
    for top in {line.split()[4] for line in lines if "cgroup" in line}:
        for folder, names, _ in os.walk(top):
            found.update(Path(folder, name) for name in names if name.startswith("hx-") and f"-{guest}-" in name)
    return found


async def guest_of(terminal: Terminal) -> int:
    """The guest's pid: it is the parent of its shells."""
    return int((await terminal.run("echo $PPID")).stdout)


async def need_groups(link: Link) -> None:
    if (await query_enforcement(link)).memory not in (Enforcer.CGROUP_V1, Enforcer.CGROUP_V2):
        pytest.skip("no control group can be used here")


def test_what_enforces_is_told(in_place: InPlace, link: LinkOf) -> None:
    async def scenario(terminal: Terminal) -> None:
        told = await query_enforcement(link(terminal))
        assert (told.file_size, told.open_files) == (Enforcer.RLIMIT, Enforcer.RLIMIT)
        assert Enforcer.NONE not in (told.cpu, told.memory)

    in_place("as it is", scenario)


@pytest.mark.parametrize(("place", "processes"), [("no control groups", "none"), ("nobody", "rlimit")])
def test_without_groups_nothing_claims_to_have_one(in_place: InPlace, link: LinkOf, place: str, processes: str) -> None:
    async def scenario(terminal: Terminal) -> None:
        told = await query_enforcement(link(terminal))
        assert (told.cpu, told.memory, told.processes) == ("rlimit", "rlimit", processes)

    in_place(place, scenario)


@pytest.mark.parametrize("command", ["true", "exit 9", "while :; do :; done", "head -c 3000000 /dev/zero >f"])
def test_the_session_goes_on_unlimited(in_place: InPlace, tmp_path: Path, command: str) -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.run(f"cd {tmp_path}; kept=state; ulimit -a >before; f() {{ echo $kept; }}")
        limits = Limits(cpu_s=0.3, memory_mib=128, processes=20, file_size_mib=1, open_files=64)
        result = await terminal.run(command, limits=limits)
        assert result.shell is ShellState.KEPT
        after = await terminal.run("ulimit -a | cmp - before && f && cat /proc/self/cgroup")
        assert after.stdout.startswith(b"state\n")
        assert b"hx-" not in after.stdout

    in_place("as it is", scenario)


def test_the_next_program_is_unlimited(in_place: InPlace) -> None:
    async def scenario(terminal: Terminal) -> None:
        look = ["bash", "-c", "ulimit -a; cat /proc/self/cgroup"]
        before = (await terminal.run(look)).stdout
        for _ in range(6):
            assert (await terminal.run(look, limits=ALL)).stdout != before
            assert (await terminal.run(look)).stdout == before

    in_place("as it is", scenario)


def test_groups_are_gone_after_the_command(in_place: InPlace, way: str, run: Run, soon: Soon) -> None:
    async def scenario(terminal: Terminal) -> None:
        guest = await guest_of(terminal)
        await run(way, terminal, "true", ALL)
        await soon(lambda: not groups(guest))

    in_place("as it is", scenario)


def test_groups_are_gone_after_a_program_that_could_not_be_started(in_place: InPlace, soon: Soon) -> None:
    async def scenario(terminal: Terminal) -> None:
        guest = await guest_of(terminal)
        await terminal.run(["no-such-program"], limits=ALL)
        await soon(lambda: not groups(guest))

    in_place("as it is", scenario)


def test_what_is_left_in_the_background_stays_limited_until_it_ends(
    in_place: InPlace, soon: Soon, link: LinkOf
) -> None:
    async def scenario(terminal: Terminal) -> None:
        await need_groups(link(terminal))
        guest = await guest_of(terminal)
        left = await terminal.run("sleep 1000 >/dev/null 2>&1 & echo $!", limits=ALL)
        pid = int(left.stdout)
        assert any(str(pid) in (group / "cgroup.procs").read_text().split() for group in groups(guest))
        os.kill(pid, signal.SIGKILL)
        await soon(lambda: not groups(guest))

    in_place("as it is", scenario)


def test_a_close_with_limited_children_leaves_no_group(in_place: InPlace) -> None:
    guests: list[int] = []

    async def scenario(terminal: Terminal) -> None:
        guests.append(await guest_of(terminal))
        await terminal.run("sleep 1000 >/dev/null 2>&1 & true", limits=ALL)
        await terminal.run(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &"], limits=ALL)

    in_place("as it is", scenario)
    assert not groups(guests[0])


class Gone(Exception):
    """The guest was killed on purpose."""


def test_groups_of_a_killed_guest_are_removed_by_the_next(in_place: InPlace, soon: Soon, link: LinkOf) -> None:
    guests: list[int] = []

    async def killed(terminal: Terminal) -> None:
        await need_groups(link(terminal))
        guests.append(await guest_of(terminal))
        running = asyncio.ensure_future(terminal.run("sleep 1000", limits=ALL))
        await soon(lambda: groups(guests[0]))
        os.kill(guests[0], signal.SIGKILL)
        with pytest.raises(HermesError):
            await running
        raise Gone

    with pytest.raises(Gone):
        in_place("as it is", killed)

    async def following(terminal: Terminal) -> None:
        await terminal.run("true", limits=ALL)

    in_place("as it is", following)
    assert not groups(guests[0])


@pytest.mark.parametrize(
    "shadow",
    [
        "echo() { :; }; ulimit() { :; }",
        "alias echo=: ulimit=:",
        "set -o posix; command() { :; }",
        "set -eu -f -C",
    ],
)
def test_names_that_the_user_redefined_do_not_undo_a_limit(in_place: InPlace, tmp_path: Path, shadow: str) -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.run("shopt -s expand_aliases; " + shadow)
        write = f"head -c 3000000 /dev/zero >|{tmp_path}/file"
        result = await terminal.run(write, limits=Limits(file_size_mib=1, memory_mib=64))
        assert result.limit == "file_size"

    in_place("as it is", scenario)


def test_a_command_whose_limits_cannot_be_set_does_not_run(in_place: InPlace) -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.run("ulimit -n 100")
        with pytest.raises(Unsupported, match="its limits could not be set"):
            await terminal.run("echo ran >&2; touch /tmp/$$", limits=Limits(open_files=200))
        after = await terminal.run("echo next; ulimit -n; [ -e /tmp/$$ ] || echo not there")
        assert (after.stdout, after.stderr) == (b"next\n100\nnot there\n", b"")

    in_place("nobody", scenario)


def test_a_higher_limit_than_the_guests_own_changes_nothing(in_place: InPlace, way: str, run: Run) -> None:
    async def scenario(terminal: Terminal) -> None:
        hard = (await terminal.run(["bash", "-c", "ulimit -H -n"])).stdout
        assert (await run(way, terminal, "ulimit -n", Limits(open_files=1 << 30))).stdout == hard

    in_place("as it is", scenario)


def test_a_hundred_limited_commands_at_once_keep_apart(in_place: InPlace) -> None:
    async def scenario(terminal: Terminal) -> None:
        async def one(number: int) -> bytes:
            words = ["bash", "-c", "ulimit -n"]
            return (await terminal.run(words, limits=Limits(open_files=100 + number, memory_mib=50))).stdout

        assert await asyncio.gather(*map(one, range(100))) == [b"%d\n" % (100 + number) for number in range(100)]

    in_place("as it is", scenario)
