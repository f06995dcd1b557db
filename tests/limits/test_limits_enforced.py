"""Each limit holds what it says, in every way to run a command, and the result names it."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hermes_exec.errors import Unsupported
from hermes_exec.result import Result
from hermes_exec.terminal.limits import Enforcer, Limits, query_enforcement
from hermes_exec.terminal.terminal import Terminal
from hermes_exec.transport.link import Link
from tests.rigs.breadth import thorough
from tests.rigs.processes import with_mark

Scenario = Callable[[Terminal], Awaitable[None]]
InPlace = Callable[[str, Scenario], None]
Run = Callable[..., Awaitable[Result]]
LinkOf = Callable[[Terminal], Link]

every_place = pytest.mark.parametrize(
    "place", ["as it is", *(pytest.param(other, marks=thorough) for other in ("python 3.6", "no control groups"))]
)
GROUPS = {Enforcer.CGROUP_V1, Enforcer.CGROUP_V2}
HOG = f"exec {sys.executable} -c 'print(len(bytearray(300 << 20)))'"
BOMB = "bomb() { bomb | bomb & }; bomb 2>/dev/null; sleep 1; true"


COUNT_FORKS = """exec /usr/bin/python3 -c '
import os, time
count = 1
try:
    while count < 99:
        if os.fork() == 0:
            time.sleep(9)
        count += 1
except OSError:
    print(count)
'"""


async def grouped(link: Link, limit: str) -> None:
    """Go on where a control group holds the limit; else skip."""
    enforcer = getattr(await query_enforcement(link), limit)
    if enforcer not in GROUPS:
        pytest.skip(f"no control group for {limit} can be used here ({enforcer})")


def test_a_memory_hog_is_ended_and_the_limit_named(in_place: InPlace, way: str, run: Run, link: LinkOf) -> None:
    async def scenario(terminal: Terminal) -> None:
        await grouped(link(terminal), "memory")
        result = await run(way, terminal, HOG, Limits(memory_mib=64))
        assert result.limit == "memory"
        assert not result.ok
        assert result.stdout == b""
        assert (await run(way, terminal, HOG, Limits(memory_mib=600))).stdout == b"314572800\n"

    in_place("as it is", scenario)


def test_memory_of_all_processes_counts_together(in_place: InPlace, run: Run, link: LinkOf) -> None:
    async def scenario(terminal: Terminal) -> None:
        await grouped(link(terminal), "memory")
        part = f"{sys.executable} -c 'import time; x = bytearray(60 << 20); time.sleep(1)'"
        many = f"{part} & {part} & {part} & wait -n; wait -n && wait -n"
        assert (await run("words", terminal, many, Limits(memory_mib=120))).limit == "memory"

    in_place("as it is", scenario)


def test_without_a_group_memory_is_bounded_for_each_process(in_place: InPlace, way: str, run: Run) -> None:
    async def scenario(terminal: Terminal) -> None:
        result = await run(way, terminal, HOG, Limits(memory_mib=64))
        assert result.exit_code == 1
        assert b"MemoryError" in result.stderr
        assert (await run(way, terminal, HOG, Limits(memory_mib=600))).stdout == b"314572800\n"

    in_place("no control groups", scenario)


def test_without_a_group_reserved_memory_that_nobody_uses_is_free(in_place: InPlace, run: Run) -> None:
    async def scenario(terminal: Terminal) -> None:
        reserve = "import mmap; mmap.mmap(-1, 1 << 30, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE); print(1)"
        result = await run("words", terminal, f'exec {sys.executable} -c "{reserve}"', Limits(memory_mib=64))
        assert result.stdout == b"1\n"

    in_place("no control groups", scenario)


@every_place
def test_cpu_time_ends_a_busy_command(in_place: InPlace, place: str, way: str, run: Run) -> None:
    async def scenario(terminal: Terminal) -> None:
        started = time.monotonic()
        result = await run(way, terminal, "while :; do :; done", Limits(cpu_s=1))
        assert result.limit == "cpu"
        assert result.signal == signal.SIGXCPU or result.exit_code == 128 + signal.SIGXCPU
        assert time.monotonic() - started < 20

    in_place(place, scenario)


def test_cpu_time_of_all_processes_counts_together(in_place: InPlace, run: Run, link: LinkOf) -> None:
    async def scenario(terminal: Terminal) -> None:
        await grouped(link(terminal), "cpu")
        short = "x=0; while ((x < 100000)); do ((x += 1)); done"  # each far below the limit
        result = await run("words", terminal, f"while :; do ({short}); done", Limits(cpu_s=1))
        assert result.limit == "cpu"

    in_place("as it is", scenario)


def test_a_command_that_ignores_the_warning_is_killed(in_place: InPlace, way: str, run: Run, link: LinkOf) -> None:
    async def scenario(terminal: Terminal) -> None:
        await grouped(link(terminal), "cpu")
        short = "x=0; while ((x < 30000)); do ((x += 1)); done"
        busy = f"trap '' XCPU; while :; do ({short}); done"
        result = await run(way, terminal, busy, Limits(cpu_s=0.3), timeout=15)
        assert (result.limit, result.timed_out) == ("cpu", False)

    in_place("as it is", scenario)


def test_without_a_group_too_a_command_that_ignores_the_warning_is_killed(
    in_place: InPlace, way: str, run: Run
) -> None:
    async def scenario(terminal: Terminal) -> None:
        result = await run(way, terminal, "trap '' XCPU; while :; do :; done", Limits(cpu_s=0.3), timeout=60)
        assert signal.SIGKILL in {result.signal, (result.exit_code or 0) - 128}
        assert not result.timed_out

    in_place("no control groups", scenario)


def test_a_command_that_sleeps_uses_no_cpu_time(in_place: InPlace, way: str, run: Run) -> None:
    async def scenario(terminal: Terminal) -> None:
        result = await run(way, terminal, "sleep 1.3; echo awake", Limits(cpu_s=1))
        assert (result.stdout, result.limit) == (b"awake\n", None)

    in_place("as it is", scenario)


def test_a_fork_bomb_is_held(in_place: InPlace, way: str, run: Run, link: LinkOf) -> None:
    async def scenario(terminal: Terminal) -> None:
        await grouped(link(terminal), "processes")
        await run(way, terminal, BOMB + " # burn-mark", Limits(processes=20), timeout=2)
        assert len(with_mark("burn-mark")) <= 25
        assert (await terminal.run("echo alive", timeout=20)).stdout == b"alive\n"

    in_place("as it is", scenario)


def test_the_limit_on_processes_is_named(in_place: InPlace, way: str, run: Run, link: LinkOf) -> None:
    async def scenario(terminal: Terminal) -> None:
        await grouped(link(terminal), "processes")
        forks = f"exec {sys.executable} -c 'import os,time\nfor n in range(9): os.fork() or time.sleep(9)'"
        result = await run(way, terminal, forks, Limits(processes=5))
        assert (result.exit_code, result.limit) == (1, "processes")
        assert b"BlockingIOError" in result.stderr

    in_place("as it is", scenario)


@pytest.mark.parametrize("processes", [4, 9])
def test_without_a_group_the_users_processes_are_bounded(
    in_place: InPlace, way: str, run: Run, link: LinkOf, processes: int
) -> None:
    async def scenario(terminal: Terminal) -> None:
        assert (await query_enforcement(link(terminal))).processes is Enforcer.RLIMIT
        result = await run(way, terminal, COUNT_FORKS, Limits(processes=processes))
        # The guest's own come and go meanwhile: what sweeps, and what a shell starts with. There are few of them.
        assert processes - 1 <= int(result.stdout) <= processes + 4

    in_place("nobody", scenario)


def test_a_limit_that_nothing_enforces_is_refused(in_place: InPlace, way: str, run: Run, link: LinkOf) -> None:
    async def scenario(terminal: Terminal) -> None:
        assert (await query_enforcement(link(terminal))).processes is Enforcer.NONE
        with pytest.raises(Unsupported, match="nothing here can limit processes"):
            await run(way, terminal, "echo ran", Limits(processes=5))
        assert (await terminal.run("echo next")).stdout == b"next\n"

    in_place("no control groups", scenario)


@every_place
def test_file_size_ends_a_writer(in_place: InPlace, place: str, way: str, run: Run, tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        write = f"exec head -c {{}} /dev/zero >{tmp_path}/{way}"
        result = await run(way, terminal, write.format(3 << 20), Limits(file_size_mib=2))
        assert result.limit == "file_size"
        assert (tmp_path / way).stat().st_size == 2 << 20
        assert (await run(way, terminal, write.format(2 << 20), Limits(file_size_mib=2))).ok

    in_place(place, scenario)


@every_place
def test_open_files_are_bounded(in_place: InPlace, place: str, way: str, run: Run) -> None:
    async def scenario(terminal: Terminal) -> None:
        opens = 'for n in 3 4 5 6 7 8 9; do eval "exec $n</dev/null" || exit 7; done; ulimit -n'
        assert (await run(way, terminal, opens, Limits(open_files=8))).stdout == b""
        assert (await run(way, terminal, opens, Limits(open_files=10))).stdout == b"10\n"

    in_place(place, scenario)


def test_all_limits_hold_at_once(in_place: InPlace, way: str, run: Run) -> None:
    async def scenario(terminal: Terminal) -> None:
        everything = Limits(cpu_s=5, memory_mib=256, processes=20, file_size_mib=1, open_files=64)
        result = await run(way, terminal, "ulimit -f; ulimit -n; ulimit -t; (echo sub)", everything)
        assert result.stdout == b"1024\n64\n5\nsub\n"
        assert result.ok

    in_place("as it is", scenario)


def test_a_success_names_no_limit(in_place: InPlace, way: str, run: Run, link: LinkOf) -> None:
    async def scenario(terminal: Terminal) -> None:
        await grouped(link(terminal), "memory")
        result = await run(way, terminal, f"({HOG}); true", Limits(memory_mib=64))
        assert (result.exit_code, result.limit) == (0, None)

    in_place("as it is", scenario)


def test_a_failure_of_another_kind_names_no_limit(in_place: InPlace, way: str, run: Run) -> None:
    async def scenario(terminal: Terminal) -> None:
        limits = Limits(cpu_s=60, memory_mib=600, file_size_mib=10)
        assert (await run(way, terminal, "exit 3", limits)).limit is None
        assert (await run(way, terminal, "kill -TERM $BASHPID; sleep 9", limits)).limit is None

    in_place("as it is", scenario)


def test_a_timeout_is_told_as_a_timeout(in_place: InPlace, run: Run) -> None:
    async def scenario(terminal: Terminal) -> None:
        result = await run("words", terminal, "sleep 60", Limits(memory_mib=600, cpu_s=60), timeout=0.3)
        assert (result.timed_out, result.limit) == (True, None)

    in_place("as it is", scenario)


def test_a_missing_program_is_told_as_ever(in_place: InPlace) -> None:
    async def scenario(terminal: Terminal) -> None:
        result = await terminal.run(["no-such-program"], limits=Limits(memory_mib=64, open_files=20))
        assert result.exit_code == 127
        assert b"no-such-program" in result.stderr

    in_place("as it is", scenario)


def test_a_shell_that_is_not_bash_has_limits_too(in_place: InPlace, tmp_path: Path) -> None:
    if not shutil.which("dash"):
        pytest.skip("needs dash. Try: apt-get install dash")

    async def scenario(terminal: Terminal) -> None:
        async with await terminal.session(shell=shutil.which("dash")) as session:
            result = await session.run(
                f"ulimit -f; ulimit -n; head -c 3000000 /dev/zero >{tmp_path}/file",
                limits=Limits(file_size_mib=1, open_files=30, cpu_s=9),
            )
            assert result.stdout == b"2048\n30\n"  # blocks of 512 bytes
            assert result.limit == "file_size"

    in_place("as it is", scenario)


def test_posix_mode_does_not_change_what_a_limit_means(in_place: InPlace, tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.run("set -o posix")
        result = await terminal.run(f"head -c 3000000 /dev/zero >{tmp_path}/f", limits=Limits(file_size_mib=2))
        assert result.limit == "file_size"
        assert (tmp_path / "f").stat().st_size == 2 << 20

    in_place("as it is", scenario)
