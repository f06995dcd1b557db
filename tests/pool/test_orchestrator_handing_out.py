"""Who gets which terminal, how soon, and what of the last holder is left in it: nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_exec import Closed, HermesError, Orchestrator, PlaceUnavailable, Pool, Terminal, UsageError
from hermes_exec.testing.place import count_living, link, marker, wait_until
from tests.rigs.breadth import thorough

Bounded = Callable[..., None]
Ready = Callable[..., Awaitable[None]]
Soon = Callable[..., Awaitable[None]]


def guest(terminal: Terminal) -> str:
    return str(link(terminal).guest["id"])


async def lives(terminal: Terminal, mark: str) -> bool:
    return await count_living(terminal, mark) == 1


def test_a_terminal_that_is_ready_is_had_while_no_other_can_be_opened(
    gated: Any, bounded: Bounded, ready: Ready
) -> None:
    async def scenario() -> None:
        async with Orchestrator({"p": Pool(gated, warm=1, audit=False)}) as orchestrator:
            await ready(orchestrator, "p", 1)
            gated.gate.clear()
            async with orchestrator.terminal("p") as terminal:
                assert orchestrator.status()["p"].coming == 1
                assert (await terminal.run("echo here")).stdout == b"here\n"

    bounded(scenario())


def test_a_pool_is_filled_again_behind_the_callers_back(gated: Any, bounded: Bounded, ready: Ready) -> None:
    async def scenario() -> None:
        async with Orchestrator({"p": Pool(gated, warm=2, audit=False)}) as orchestrator:
            await ready(orchestrator, "p", 2)
            async with orchestrator.terminal("p"):
                await ready(orchestrator, "p", 2)

    bounded(scenario())


def test_a_used_terminal_is_never_handed_out_again(gated: Any, bounded: Bounded) -> None:
    async def scenario() -> None:
        async with Orchestrator({"p": Pool(gated, warm=1, audit=False)}, limit=2) as orchestrator:
            seen: list[str] = []
            for _ in range(4):
                async with orchestrator.terminal("p") as terminal:
                    seen.append(guest(terminal))
            assert len(set(seen)) == 4

    bounded(scenario())


def test_a_released_terminal_is_closed_with_all_that_it_left_running(gated: Any, bounded: Bounded, soon: Soon) -> None:
    mark = marker()

    async def scenario() -> None:
        async with Orchestrator({"p": Pool(gated, audit=False)}) as orchestrator:
            async with orchestrator.terminal("p") as terminal:
                await terminal.run(f"setsid sleep {mark} &")
                folder = Path(link(terminal).guest["folder"])
                await wait_until(lambda: lives(terminal, mark))
            with pytest.raises(Closed, match="open a new one"):  # at once, not when the closing is done
                await terminal.run("true")
            await soon(lambda: not folder.exists())
            async with orchestrator.terminal("p") as other:
                assert await count_living(other, mark) == 0

    bounded(scenario())


def test_a_place_that_may_be_reset_is_handed_out_again_clean(gated: Any, bounded: Bounded, tmp_path: Path) -> None:
    mark = marker()
    left = tmp_path / "left"

    async def scenario() -> None:
        pool = Pool(gated, warm=1, reset=f"rm {left}; echo reset >> {tmp_path}/resets", audit=False)
        async with Orchestrator({"p": pool}, limit=1) as orchestrator:
            async with orchestrator.terminal("p") as first:
                named = await first.session("mine")
                await named.run("secret=1")
                await first.run(f"cd /tmp; secret=1; sleep {mark} & echo x > {left}")
                place = guest(first)
            async with orchestrator.terminal("p") as second:
                assert guest(second) == place
                assert second is not first
                assert not left.exists()
                assert (await second.run("echo $secret")).stdout == b"\n"
                assert await count_living(second, mark) == 0
                with pytest.raises(Closed):
                    await first.run("true")
                with pytest.raises(HermesError):
                    await named.run("true")
            assert (tmp_path / "resets").read_text() == "reset\n"
            assert gated.opened == 1

    bounded(scenario())


async def _refuses(_: Terminal) -> None:
    raise RuntimeError("no")


@pytest.mark.parametrize("reset", ["exit 1", ["sleep", "600"], _refuses], ids=["fails", "takes too long", "raises"])
@thorough
def test_a_place_that_cannot_be_reset_is_replaced(gated: Any, bounded: Bounded, reset: Any) -> None:
    async def scenario() -> None:
        pool = Pool(gated, warm=1, reset=reset, reset_s=2.0, audit=False)
        async with Orchestrator({"p": pool}, limit=1) as orchestrator:
            async with orchestrator.terminal("p") as first:
                place = guest(first)
            async with orchestrator.terminal("p") as second:
                assert guest(second) != place
                assert (await second.run("echo well")).stdout == b"well\n"

    bounded(scenario())


def test_a_place_with_jobs_is_not_used_again_and_its_jobs_go_on(gated: Any, bounded: Bounded, tmp_path: Path) -> None:
    async def scenario() -> None:
        pool = Pool(gated, warm=1, reset="true", audit=False)
        async with Orchestrator({"p": pool}, limit=1) as orchestrator:
            async with orchestrator.terminal("p") as first:
                await first.start(f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo done > {tmp_path}/done")
                place = guest(first)
            async with orchestrator.terminal("p") as second:
                assert guest(second) != place
                assert await second.jobs() == []
                (tmp_path / "go").touch()
                await second.run(f"until [ -s {tmp_path}/done ]; do sleep 0.05; done", timeout=60, check=True)

    bounded(scenario())


def test_a_place_with_a_program_that_is_kept_is_not_used_again(gated: Any, bounded: Bounded) -> None:
    async def scenario() -> None:
        pool = Pool(gated, warm=1, reset="true", audit=False)
        async with Orchestrator({"p": pool}, limit=1) as orchestrator:
            async with orchestrator.terminal("p") as first:
                await first.pty(["cat"], name="kept", keep_s=5)
                place = guest(first)
            async with orchestrator.terminal("p") as second:
                assert guest(second) != place

    bounded(scenario())


def test_who_waits_is_told_why_nothing_can_be_opened(gated: Any, bounded: Bounded) -> None:
    async def scenario() -> None:
        gated.broken = True
        async with Orchestrator({"p": Pool(gated)}) as orchestrator:
            with pytest.raises(PlaceUnavailable, match="broken today"):
                await orchestrator.lease("p")
            gated.broken = False
            async with orchestrator.terminal("p") as terminal:
                assert (await terminal.run(["true"])).ok

    bounded(scenario())


def test_a_warm_pool_whose_place_is_broken_is_not_hammered(gated: Any, bounded: Bounded, soon: Soon) -> None:
    async def scenario() -> None:
        gated.broken = True
        async with Orchestrator({"p": Pool(gated, warm=1)}) as orchestrator:
            await soon(lambda: gated.opened == 1 and not orchestrator.status()["p"].coming)
            for _ in range(100):
                await asyncio.sleep(0)
            assert gated.opened == 1
            await soon(lambda: gated.opened == 2)

    bounded(scenario())


def test_whoever_waits_too_long_is_told_and_takes_nothing(gated: Any, bounded: Bounded) -> None:
    async def scenario() -> None:
        async with Orchestrator({"p": Pool(gated, audit=False)}, limit=1) as orchestrator:
            async with orchestrator.terminal("p"):
                with pytest.raises(PlaceUnavailable, match="became free within 0.05 s"):
                    await orchestrator.lease("p", wait_s=0.05)
            async with orchestrator.terminal("p") as terminal:
                assert (await terminal.run(["true"])).ok

    bounded(scenario())


def test_a_caller_who_is_cancelled_while_waiting_takes_nothing(gated: Any, bounded: Bounded) -> None:
    async def scenario() -> None:
        gated.gate.clear()
        async with Orchestrator({"p": Pool(gated, audit=False)}, limit=1) as orchestrator:
            waiting = asyncio.ensure_future(orchestrator.lease("p"))
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            gated.gate.set()
            async with orchestrator.terminal("p") as terminal:
                assert (await terminal.run(["true"])).ok

    bounded(scenario())


def test_when_the_time_of_a_lease_is_over_what_runs_is_stopped(gated: Any, bounded: Bounded, soon: Soon) -> None:
    mark = marker()

    async def scenario() -> None:
        async with Orchestrator({"p": Pool(gated, audit=False)}) as orchestrator:
            lease = await orchestrator.lease("p", hold_s=1.0)
            with pytest.raises(HermesError):
                await lease.terminal.run(["sleep", mark])
            assert lease.over == "its 1 s are over"
            with pytest.raises(Closed):
                lease.extend(5)
            await soon(lambda: orchestrator.status()["p"].held == 0)
            async with orchestrator.terminal("p") as other:
                assert await count_living(other, mark) == 0

    bounded(scenario())


def test_a_lease_that_is_extended_holds(gated: Any, bounded: Bounded) -> None:
    async def scenario() -> None:
        pool = Pool(gated, hold_s=0.5, audit=False)
        async with Orchestrator({"p": pool}) as orchestrator, await orchestrator.lease("p") as lease:
            lease.extend(None)
            assert (await lease.terminal.run(["sleep", "1"])).ok
            assert not lease.over

    bounded(scenario())


def test_a_name_without_a_pool_is_a_target(bounded: Bounded) -> None:
    async def scenario() -> None:
        async with Orchestrator() as orchestrator, orchestrator.terminal("local") as terminal:
            assert terminal.target == "local"

    bounded(scenario())


def test_in_a_place_without_python_it_works_the_same(gated: Any, bounded: Bounded, tmp_path: Path) -> None:
    async def scenario() -> None:
        pool = Pool(gated, warm=1, reset="true", carrier="plain", audit=False)
        async with Orchestrator({"p": pool}, limit=1, check_every_s=0.05) as orchestrator:
            async with orchestrator.terminal("p", key="a") as first:
                await first.run("cd /tmp", check=True)
                await asyncio.sleep(0.3)  # some looks at its health
                assert (await first.run("echo $x")).ok
            async with orchestrator.terminal("p") as second:
                assert (await second.run("pwd")).stdout != b"/tmp\n"
                with pytest.raises(Closed):
                    await first.run("true")

    bounded(scenario())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Pool("local", warm=-1),
        lambda: Pool("local", reset="true"),
        lambda: Pool("local", hold_s=0),
        lambda: Orchestrator(limit=0),
        lambda: Orchestrator(limits={"local": 0}),
        lambda: Orchestrator(check_every_s=0),
    ],
)
def test_a_number_that_makes_no_sense_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        wrong()


def test_an_orchestrator_that_is_not_open_says_so(bounded: Bounded) -> None:
    async def scenario() -> None:
        orchestrator = Orchestrator()
        with pytest.raises(Closed, match="is new"):
            await orchestrator.lease("local")
        async with orchestrator:
            with pytest.raises(UsageError, match="key"):
                await orchestrator.lease("local", key="a\nb")
        with pytest.raises(Closed, match="is closed"):
            await orchestrator.lease("local")

    bounded(scenario())
