"""The end: nothing new, what runs may finish for a while, then it is stopped; nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_exec import Closed, HermesError, Orchestrator, Pool
from hermes_exec.testing.place import link

Bounded = Callable[..., None]
Soon = Callable[..., Awaitable[None]]


def test_draining_waits_for_what_is_held(gated: Any, bounded: Bounded) -> None:
    async def scenario() -> None:
        async with Orchestrator({"p": Pool(gated, audit=False)}) as orchestrator:

            async def work() -> bytes:
                async with orchestrator.terminal("p") as terminal:
                    started.set()
                    return (await terminal.run("sleep 0.5; echo done")).stdout

            started = asyncio.Event()
            working = asyncio.ensure_future(work())
            await started.wait()
            assert await orchestrator.drain(60) == 0
            assert await working == b"done\n"

    bounded(scenario())


def test_what_does_not_end_in_time_is_stopped_and_told(gated: Any, bounded: Bounded) -> None:
    async def scenario() -> None:
        async with Orchestrator({"p": Pool(gated, audit=False)}) as orchestrator:
            lease = await orchestrator.lease("p")
            running = asyncio.ensure_future(lease.terminal.run(["sleep", "600"]))
            await asyncio.sleep(0.1)
            assert await orchestrator.drain(0.2) == 1
            with pytest.raises(HermesError) as caught:
                await running
            assert caught.value.state == "it was stopped"
            assert lease.over == "the orchestrator closes"

    bounded(scenario())


def test_while_it_drains_nobody_gets_a_terminal(gated: Any, bounded: Bounded) -> None:
    async def scenario() -> None:
        async with Orchestrator({"p": Pool(gated, audit=False)}, limit=1) as orchestrator:
            lease = await orchestrator.lease("p")
            waiting = asyncio.ensure_future(orchestrator.lease("p"))
            await asyncio.sleep(0)
            draining = asyncio.ensure_future(orchestrator.drain(60))
            with pytest.raises(Closed):
                await waiting
            with pytest.raises(Closed):
                await orchestrator.lease("p")
            assert not draining.done()
            await lease.release()
            assert await draining == 0

    bounded(scenario())


def test_closing_ends_what_is_being_opened(gated: Any, bounded: Bounded) -> None:
    async def scenario() -> None:
        async with Orchestrator({"p": Pool(gated, warm=3, audit=False)}) as orchestrator:
            await asyncio.sleep(0.05)
            gated.gate.clear()
        assert orchestrator.status()["p"].coming == 0

    bounded(scenario())


def test_after_the_end_neither_guests_nor_a_record_are_left(
    gated: Any, bounded: Bounded, soon: Soon, state: Path
) -> None:
    folders: list[Path] = []

    async def scenario() -> None:
        async with Orchestrator({"p": Pool(gated, warm=2, audit=False)}) as orchestrator:
            for _ in range(2):
                lease = await orchestrator.lease("p", key="somebody")
                folders.append(Path(link(lease.terminal).guest["folder"]))
            assert len(list(state.glob("*/*.json"))) >= 3
        await soon(lambda: not [folder for folder in folders if folder.exists()])
        assert list(state.iterdir()) == []

    bounded(scenario())


def test_closing_twice_is_safe(gated: Any, bounded: Bounded) -> None:
    async def scenario() -> None:
        orchestrator = Orchestrator({"p": Pool(gated, warm=1, audit=False)})
        await orchestrator.start()
        await orchestrator.close()
        await orchestrator.close()

    bounded(scenario())
