"""Targets that fail to open are paused."""

from __future__ import annotations

import asyncio
import time

from hermes_exec.errors import PlaceUnavailable
from hermes_exec_agent.batch.places import PlaceHealth


def test_a_target_that_keeps_failing_is_tried_by_one_at_a_time_after_pauses() -> None:
    opened: list[float] = []
    at_once = 0

    async def try_open(health: PlaceHealth, target: str, *, fails: bool) -> None:
        nonlocal at_once
        try:
            async with health.admit(target):
                at_once += 1
                opened.append(time.monotonic())
                await asyncio.sleep(0.01)
                at_once -= 1
                if fails:
                    raise PlaceUnavailable("no")  # noqa: TRY301  as an opening does
        except PlaceUnavailable:
            assert fails

    async def scenario() -> None:
        health = PlaceHealth()
        for _ in range(3):
            await try_open(health, "bad", fails=True)
        assert health.paused == ["bad"]
        began = time.monotonic()
        await asyncio.gather(*(try_open(health, "good", fails=False) for _ in range(3)))
        assert time.monotonic() - began < 0.9
        opened.clear()
        await asyncio.gather(try_open(health, "bad", fails=True), try_open(health, "bad", fails=False))
        first, second = opened
        assert first - began >= 0.9
        assert second - first >= 1.9
        opened.clear()
        began = time.monotonic()
        await asyncio.gather(*(try_open(health, "bad", fails=False) for _ in range(5)))
        assert time.monotonic() - began < 0.9

    asyncio.run(scenario())
