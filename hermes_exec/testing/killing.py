"""Killing: a time limit, a cancellation or a close ends the command and its whole process tree."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import NOTHING_RAN, Closed
from hermes_exec.result import Result
from hermes_exec.testing.behaviours import Behaviours, exercises, needs
from hermes_exec.testing.input import WAYS, as_command
from hermes_exec.testing.place import SuiteTarget, count_living, marker, wait_until
from hermes_exec.testing.sessions import output_of

if TYPE_CHECKING:
    from hermes_exec.terminal.session import Session
    from hermes_exec.terminal.terminal import Terminal

PLAIN = {
    "the program itself": "sleep {m}",
    "a child": "(sleep {m}); true",
    "a pipeline": "sleep {m} | sleep {m} | sleep {m}",
    "a child in the background": "sleep {m} & sleep {m} & wait",
    "one that ignores TERM": "trap '' TERM; sleep {m}; sleep {m}",
    "a loop that starts new ones": "while :; do sleep {m} & sleep 0.01; done",
    "one that is stopped": "sleep {m} & kill -STOP $!; wait",
    "one that was started when TERM came": "trap 'sleep {m} & wait' TERM; (trap 'sleep {m}' TERM; sleep 1 & wait); sleep {m}",
}
"""The commands that have to end after a time limit, on every target."""
SPREAD = {
    "one in a session of its own": "setsid sleep {m} & sleep {m}",
    "one that was forked twice": "(setsid sh -c 'sleep {m} & sleep {m} & exit' &) ; sleep {m}",
    "one that was forked twice and ignores TERM": "(setsid sh -c 'trap \"\" TERM HUP; (sleep {m} &) ; sleep {m}' &); sleep {m}",
    "one in a process group of its own": "set -m; sleep {m} & set +m; sleep {m}",
    "one that ignores HUP": "nohup sleep {m} >/dev/null 2>&1 & sleep {m}",
    "one without an environment": 'env -i PATH="$PATH" setsid sleep {m} & sleep {m}',
    "one without open files": "setsid sleep {m} <&- >&- 2>&- & sleep {m}",
    "one with another name": "(exec -a innocent setsid sleep {m}) & sleep {m}",
}
"""The same where ``kill_tree`` is promised."""


class KillingSuite(Behaviours, exercises="channel"):
    """No process survives that had to end, and no other process is ended."""

    async def _is_ended(self, terminal: Terminal, way: str, text: str) -> None:
        mark = marker()
        command = as_command(way, text.replace("{m}", mark))
        started = time.monotonic()
        result = await terminal.run(command, timeout=0.3, grace_s=0.2)
        assert time.monotonic() - started < 30
        assert result.timed_out
        assert not result.ok
        assert result.duration_s >= 0.3
        assert await count_living(terminal, mark) == 0

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("kind", PLAIN)
    async def test_a_time_limit_ends(self, terminal: Terminal, kind: str, way: str) -> None:
        await self._is_ended(terminal, way, PLAIN[kind])

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("kind", SPREAD)
    @needs("kill_tree")
    @exercises("target")
    async def test_a_time_limit_also_ends(self, terminal: Terminal, kind: str, way: str) -> None:
        await self._is_ended(terminal, way, SPREAD[kind])

    @exercises("guest")
    async def test_a_shell_that_only_computes_is_ended(self, terminal: Terminal) -> None:
        result = await terminal.run("while :; do :; done", timeout=0.3, grace_s=0.2)
        assert result.timed_out

    @exercises("guest")
    async def test_a_time_limit_not_reached_changes_nothing(self, terminal: Terminal) -> None:
        result = await terminal.run("echo quick; (exit 3)", timeout=20)
        assert (result.timed_out, result.stdout, result.exit_code) == (False, b"quick\n", 3)
        assert result.duration_s < 10

    @pytest.mark.parametrize("way", WAYS)
    @exercises("guest")
    async def test_there_is_time_to_say_goodbye(self, terminal: Terminal, way: str) -> None:
        text = "sh -c 'trap \"echo bye; exit 0\" TERM; echo ready; while :; do sleep 0.05; done'"
        result = await terminal.run(as_command(way, text), timeout=2, grace_s=20)
        assert result.timed_out
        assert result.stdout == b"ready\nbye\n"
        assert result.duration_s < 20

    @exercises("guest")
    async def test_without_grace_it_is_killed_at_once(self, terminal: Terminal) -> None:
        text = "trap 'echo never; exit' TERM; echo ready; while :; do sleep 0.05; done"
        result = await terminal.run(["sh", "-c", text], timeout=2, grace_s=0)
        assert (result.timed_out, result.stdout) == (True, b"ready\n")

    async def test_the_time_limit_of_one_leaves_the_others_alone(self, terminal: Terminal, folder: str) -> None:
        await terminal.run(["mkfifo", f"{folder}/go"], check=True)
        other = asyncio.ensure_future(terminal.run(["sh", "-c", f"cat {folder}/go"]))
        result = await terminal.run(["sh", "-c", "sleep 60"], timeout=0.2, grace_s=0.1)
        assert result.timed_out
        await terminal.run(["sh", "-c", f"echo alive > {folder}/go"], timeout=10)
        assert (await other).stdout == b"alive\n"

    async def test_a_kill_still_at_work_disturbs_no_command_that_follows(self, terminal: Terminal) -> None:
        for _ in range(5):
            text = "(trap '' TERM; sleep 60) & sleep 60"
            assert (await terminal.run(["sh", "-c", text], timeout=0.05, grace_s=0.05)).timed_out
            results = await asyncio.gather(*(terminal.run(["sh", "-c", "sleep 0.1; echo $0"]) for _ in range(4)))
            assert [result.stdout for result in results] == [b"sh\n"] * 4

    @exercises("guest")
    async def test_children_of_earlier_commands_outlive_a_time_limit(
        self, session: Session, terminal: Terminal
    ) -> None:
        mark = marker()
        await session.run(f"sleep {mark} & setsid sleep {mark} &")
        result = await session.run("sleep 60", timeout=0.3, grace_s=0.1)
        assert result.timed_out
        assert await count_living(terminal, mark) == 2

    @exercises("guest")
    async def test_children_of_one_session_outlive_another_session(
        self, place: SuiteTarget, session: Session, terminal: Terminal
    ) -> None:
        mark = marker()
        await session.run(f"sleep {mark} & setsid sleep {mark} & exit")
        async with await place.session() as other:
            await other.run("sleep 60", timeout=0.2, grace_s=0.1)
            await other.run("exit")
        assert await count_living(terminal, mark) == 2

    @exercises("guest")
    async def test_a_command_that_waits_for_its_turn_can_be_cancelled_and_never_runs(
        self, session: Session, folder: str
    ) -> None:
        await session.run(f"mkfifo {folder}/go")
        first = asyncio.ensure_future(session.run(f"cat {folder}/go"))
        second = asyncio.ensure_future(session.run(f"touch {folder}/ran"))
        await asyncio.sleep(0)  # both were requested
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        third = asyncio.ensure_future(session.run(f"test -e {folder}/ran; echo $?"))
        async with await self._place.session() as helper:
            await helper.run(f"echo go > {folder}/go", timeout=10)
        assert (await first).stdout == b"go\n"
        assert (await third).stdout == b"1\n"

    @exercises("guest")
    async def test_a_cancelled_command_leaves_its_session_usable(self, session: Session) -> None:
        await session.run("kept=1")
        task = asyncio.ensure_future(session.run("sleep 60", grace_s=0.1))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await output_of(session, "echo on $kept") == "on 1\n"

    async def test_closing_the_terminal_ends_the_commands_that_run(self, place: SuiteTarget) -> None:
        mark = marker()
        async with place.fresh() as terminal:
            running = [asyncio.ensure_future(terminal.run(as_command(way, f"sleep {mark}; true"))) for way in WAYS]
            await wait_until(lambda: _lives(terminal, mark, 2))
            await terminal.close()
            ends = await asyncio.gather(*running, return_exceptions=True)
        for end in ends:
            assert end.cancelled if isinstance(end, Result) else isinstance(end, Closed)
            assert getattr(end, "state", "") != NOTHING_RAN
        assert await count_living(await place.get_shared_terminal(), mark) == 0

    @needs("kill_tree")
    async def test_closing_the_terminal_ends_what_commands_left(self, place: SuiteTarget) -> None:
        mark = marker()
        async with place.fresh() as terminal:
            await terminal.run(f"sleep {mark} & nohup sleep {mark} >/dev/null 2>&1 &")
            await terminal.run(["sh", "-c", f"sleep {mark} >/dev/null 2>&1 &"])
            await wait_until(lambda: _lives(terminal, mark, 3))
        assert await count_living(await place.get_shared_terminal(), mark) == 0

    @needs("kill_tree")
    @exercises("target")
    async def test_closing_the_terminal_also_ends_what_hides(self, place: SuiteTarget) -> None:
        mark = marker()
        async with place.fresh() as terminal:
            hide = f"setsid sh -c '(trap \"\" TERM HUP INT; sleep {mark} &) ; sleep {mark} &' <&- >&- 2>&- &"
            await terminal.run(hide)
            await terminal.run(["sh", "-c", hide])
            await wait_until(lambda: _lives(terminal, mark, 4))
        assert await count_living(await place.get_shared_terminal(), mark) == 0


async def _lives(terminal: Terminal, mark: str, count: int) -> bool:
    return await count_living(terminal, mark) >= count
