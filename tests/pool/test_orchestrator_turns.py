"""Who is next, and how many may be open at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from hermes_exec import Orchestrator, Pool
from hermes_exec.pool.fair_queue import FairQueue
from hermes_exec.testing.place import link

Bounded = Callable[..., None]
Ready = Callable[..., Awaitable[None]]


def queue_of(words: str) -> FairQueue[str]:
    queue = FairQueue[str]()
    for word in words.split():
        queue.add(word[0], word)
    return queue


def serve(queue: FairQueue[str], word: str) -> None:
    queue.serve(word[0], word)


def test_keys_take_turns_and_within_a_key_the_first_comes_first() -> None:
    assert list(queue_of("a1 a2 a3 b1 b2 c1")) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_after_its_turn_a_key_is_behind_all_others() -> None:
    queue = queue_of("a1 a2 b1")
    serve(queue, "a1")
    assert list(queue) == ["b1", "a2"]


def test_a_key_that_asks_again_and_again_does_not_push_others_back() -> None:
    queue = queue_of("a1 b1")
    served: list[str] = []
    for turn in range(4):
        word = next(iter(queue))
        serve(queue, word)
        served.append(word)
        queue.add("a", f"a{turn + 2}")
    assert served.index("b1") == 1


def test_who_leaves_the_queue_does_not_cost_the_key_its_turn() -> None:
    queue = queue_of("a1 a2 b1")
    queue.discard("a", "a1")
    queue.discard("a", "never there")
    assert list(queue) == ["a2", "b1"]
    assert len(queue) == 2


def test_terminals_are_handed_out_in_turns(gated: Any, bounded: Bounded) -> None:
    served: list[str] = []

    async def ask(orchestrator: Orchestrator, word: str) -> None:
        async with orchestrator.terminal("p", key=word[0]):
            served.append(word)

    async def scenario() -> None:
        async with Orchestrator({"p": Pool(gated, audit=False)}, limit=1) as orchestrator:
            async with orchestrator.terminal("p"):
                asking = [
                    asyncio.ensure_future(ask(orchestrator, word)) for word in ["a1", "a2", "a3", "b1", "b2", "c1"]
                ]
                await asyncio.sleep(0)
            await asyncio.gather(*asking)

    bounded(scenario())
    assert served == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_never_more_are_open_than_the_place_may_have(gated: Any, bounded: Bounded) -> None:
    open_now: set[str] = set()
    most = 0

    async def use(orchestrator: Orchestrator, profile: str) -> None:
        nonlocal most
        async with orchestrator.terminal(profile, key=profile) as terminal:
            open_now.add(str(link(terminal).guest["id"]))
            most = max(most, len(open_now))
            await terminal.run(["true"])
            open_now.discard(str(link(terminal).guest["id"]))

    async def scenario() -> None:
        pools = {"p": Pool(gated, place="here", audit=False), "q": Pool(gated, place="here", warm=1, audit=False)}
        async with Orchestrator(pools, limits={"here": 3}) as orchestrator:
            await asyncio.gather(*(use(orchestrator, "pq"[n % 2]) for n in range(12)))

    bounded(scenario())
    assert 1 <= most <= 3


def test_a_place_that_is_full_does_not_hold_up_another(gated: Any, bounded: Bounded) -> None:
    async def scenario() -> None:
        pools = {"p": Pool(gated, place="one", audit=False), "q": Pool(gated, place="other", audit=False)}
        async with Orchestrator(pools, limit=1) as orchestrator, orchestrator.terminal("p"):
            waiting = asyncio.ensure_future(orchestrator.lease("p"))
            async with orchestrator.terminal("q") as terminal:
                assert (await terminal.run(["true"])).ok
            assert not waiting.done()
            waiting.cancel()

    bounded(scenario())


def test_a_ready_terminal_gives_way_to_who_waits_for_another_pool_of_a_full_place(
    gated: Any, bounded: Bounded, ready: Ready
) -> None:
    async def scenario() -> None:
        pools = {"p": Pool(gated, place="here", warm=1, audit=False), "q": Pool(gated, place="here", audit=False)}
        async with Orchestrator(pools, limit=1) as orchestrator:
            await ready(orchestrator, "p", 1)
            async with orchestrator.terminal("q") as terminal:
                assert (await terminal.run(["true"])).ok
                assert orchestrator.status()["p"].ready == 0
            await ready(orchestrator, "p", 1)  # there is room again

    bounded(scenario())
