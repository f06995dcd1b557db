"""Time limits and cancellation on the plain carrier: what is ended, and what is honestly not."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.transport.shell.target import ShellTarget
from hermes_exec_backends.local import LocalBackend
from tests.rigs.processes import alive

if TYPE_CHECKING:
    from hermes_exec.backend import Backend
    from hermes_exec.terminal.stream import Stream
    from hermes_exec.terminal.terminal import Terminal

Plain = Callable[..., None]


async def pids(stream: Stream, count: int) -> list[int]:
    """The numbers that a command prints first."""
    said = b""
    while said.count(b"\n") < count:
        said += (await anext(stream)).data
    return [int(line) for line in said.split()[:count]]


FAMILIES = {
    "children": "sleep 60 & echo $!; sleep 61 & echo $!; wait",
    "a pipeline": "sh -c 'echo $$; sleep 60' | cat & wait",
    "grandchildren": "sh -c 'sleep 60 & echo $!; wait' & wait",
    "a session of its own below a parent that lives": "setsid sh -c 'echo $$; sleep 60' & wait",
    "one of its own that ignores TERM": ("""setsid sh -c 'trap "" TERM; echo $$; while :; do sleep 9; done' & wait"""),
    "children whose parent has gone": "sh -c 'sleep 60 & echo $!'; exec sleep 61",
    "processes that ignore TERM": "trap '' TERM; sh -c 'echo $$; while :; do sleep 60; done'; sleep 61",
    "stopped processes": "sh -c 'echo $$; kill -STOP $$'; sleep 61",
}


@pytest.mark.parametrize("text", FAMILIES.values(), ids=FAMILIES.keys())
def test_a_cancel_ends(plain: Plain, text: str) -> None:
    async def scenario(terminal: Terminal) -> None:
        async with terminal.stream(text, grace_s=0.3) as stream:
            started = await pids(stream, text.count("echo $"))
            assert all(map(alive, started))
            result = await stream.cancel()
            assert result.cancelled
            assert not any(map(alive, started))
            assert result.note == ""

    plain(scenario)


def test_where_no_exit_is_told_a_cancel_ends_children_that_outlive_the_command(plain: Plain, silent: Backend) -> None:
    async def scenario(terminal: Terminal) -> None:
        async with terminal.stream("sleep 60 & echo $!; sleep 61 & echo $!", grace_s=0.3) as stream:
            started = await pids(stream, 2)
            assert (await stream.cancel()).cancelled
            assert not any(map(alive, started))

    plain(scenario, silent)


def test_output_before_a_time_limit_is_kept(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        result = await terminal.run("echo out; echo err >&2; sleep 60", timeout=2)
        assert (result.timed_out, result.stdout, result.stderr) == (True, b"out\n", b"err\n")

    plain(scenario)


def test_a_program_may_clean_up_within_its_grace(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        text = "trap 'sleep 0.3; echo clean; exit 5' TERM; echo begun; while :; do sleep 0.05; done"
        result = await terminal.run(text, timeout=2, grace_s=20)
        assert (result.timed_out, result.exit_code, result.stdout) == (True, 5, b"begun\nclean\n")
        assert result.duration_s < 20

    plain(scenario)


def test_a_stopped_program_may_clean_up_too(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        text = "trap 'echo clean; exit 5' TERM; echo begun; kill -STOP $$; sleep 60"
        result = await terminal.run(["sh", "-c", text], timeout=2, grace_s=20)
        assert (result.exit_code, result.stdout) == (5, b"begun\nclean\n")

    plain(scenario)


def test_without_a_grace_nothing_is_asked_to_end(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        text = "trap 'echo asked' TERM; echo begun; while :; do sleep 0.05; done"
        result = await terminal.run(["sh", "-c", text], timeout=2, grace_s=0)
        assert (result.timed_out, result.signal, result.stdout) == (True, 9, b"begun\n")

    plain(scenario)


def test_the_grace_is_for_every_process_of_the_tree(plain: Plain, tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        child = 'trap "sleep 0.5; touch cleaned; exit" TERM; while :; do sleep 0.05; done'
        text = f"sh -c '{child}' >/dev/null 2>&1 & exec sleep 60"
        result = await terminal.run(text, timeout=2, grace_s=20, cwd=tmp_path)
        assert result.timed_out
        assert (tmp_path / "cleaned").exists()

    plain(scenario)


def test_a_cancelled_task_returns_when_its_command_has_ended(plain: Plain) -> None:
    nap = f"sleep 62{random.randrange(10**5, 10**6)}"  # the same test runs next to it with other shells

    async def scenario(terminal: Terminal) -> None:
        async with terminal.stream("sleep 60 & echo $!; echo $$; wait") as stream:
            child, shell = await pids(stream, 2)
            waiting = asyncio.ensure_future(terminal.run(["sh", "-c", f"echo >&2; exec {nap}"]))
            await stream.cancel()
            assert not alive(child)
            assert not alive(shell)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            left = await terminal.run(["sh", "-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"])
            assert nap.encode() not in left.stdout

    plain(scenario)


def test_a_stream_that_is_left_ends_its_command(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        async with terminal.stream(["sh", "-c", "echo $$; while :; do echo y; done"]) as stream:
            (pid,) = await pids(stream, 1)
        assert not alive(pid)

    plain(scenario)


def test_a_command_that_waits_for_its_turn_never_runs_once_cancelled(plain: Plain, tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        async with terminal.stream("echo first; sleep 60") as first:
            await anext(first)
            second = asyncio.ensure_future(terminal.run("touch ran"))
            await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
        assert (await terminal.run("ls")).stdout == b"scratch\n"

    plain(scenario, cwd=str(tmp_path))


def test_closing_the_terminal_ends_what_runs(plain: Plain) -> None:
    started: list[int] = []

    async def scenario(terminal: Terminal) -> None:
        async with (
            terminal.stream("trap '' TERM; echo $$; while :; do sleep 0.1; done") as text,
            terminal.stream(["sh", "-c", "echo $$; sleep 60"]) as words,
        ):
            started.extend(await pids(text, 1) + await pids(words, 1))
            await terminal.close()

    plain(scenario)
    assert len(started) == 2
    assert not any(map(alive, started))


def test_where_no_exit_is_told_what_left_the_tree_and_holds_the_output_is_told(
    plain: Plain, silent: Backend, tmp_path: Path
) -> None:
    async def scenario(terminal: Terminal) -> None:
        text = "(setsid sh -c 'echo $$ >pid; exec sleep 60' &); echo out"
        result = await terminal.run(text, timeout=2, cwd=tmp_path)
        pid = int((tmp_path / "pid").read_text())
        try:
            assert (result.timed_out, result.stdout) == (True, b"out\n")
            assert "may go on" in result.note
            assert alive(pid)
        finally:
            os.kill(pid, signal.SIGKILL)

    plain(scenario, silent)


def test_a_hostile_process_name_hides_nothing(plain: Plain, tmp_path: Path) -> None:
    name = tmp_path / "x) Z 1\n2 (y"
    shutil.copy("/bin/sleep", name)

    async def scenario(terminal: Terminal) -> None:
        async with terminal.stream(["sh", "-c", '"$0" 60 & echo $!; wait', str(name)], timeout=2) as stream:
            (pid,) = await pids(stream, 1)
            assert alive(pid)
            await stream.result()
            assert not alive(pid)

    plain(scenario)


def ask_place(tools: dict[str, str], question: Callable[[ShellTarget], Awaitable[None]]) -> None:
    async def whole() -> None:
        await question(await ShellTarget.probe(LocalBackend(), tools, None))

    asyncio.run(whole())


def test_a_process_that_took_over_a_number_is_left_alone(tools: dict[str, str]) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:

        async def question(place: ShellTarget) -> None:
            assert await place.signal_tree("KILL", [f"{other.pid}:1"]) == []

        ask_place(tools, question)
        assert other.poll() is None
        other.kill()


def test_a_look_signals_nothing_and_tells_who_alive(tools: dict[str, str]) -> None:
    command = ["sh", "-c", "sleep 60 & echo $!; wait"]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        child = other.stdout.readline().decode().strip()
        start = Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19]

        async def question(place: ShellTarget) -> None:
            living = await place.signal_tree("0", [f"{other.pid}:{start}"])
            assert {process.partition(":")[0] for process in living} == {str(other.pid), child}
            assert other.poll() is None
            assert await place.signal_tree("KILL", living) == []

        ask_place(tools, question)
        assert other.wait() == -signal.SIGKILL


def test_commands_lead_a_session_also_where_the_place_gives_them_none(
    plain: Plain, behind: Callable[[str], Backend]
) -> None:
    async def scenario(terminal: Terminal) -> None:
        assert (await terminal.run(["sh", "-c", "exit 7"])).exit_code == 7
        assert (await terminal.run("cat", stdin="input")).stdout == b"input"
        async with terminal.stream("sh -c 'sleep 60 & echo $!'; exec sleep 61", timeout=2) as stream:
            (orphan,) = await pids(stream, 1)
            assert (await stream.result()).note == ""
            assert not alive(orphan)

    plain(scenario, behind('"$@"; exit $?'))
