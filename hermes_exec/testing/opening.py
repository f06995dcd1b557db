"""Opening and closing: cancelled at any moment, they leave a place that can be opened."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing.behaviours import Behaviours, needs
from hermes_exec.testing.place import living, marker

if TYPE_CHECKING:
    from hermes_exec.testing.place import Place

_MOMENTS_S = (0.0, 0.01, 0.04, 0.15, 0.4)


class Opening(Behaviours):
    """Who gives up waiting for a place, or for its end, has nothing to clean up."""

    @pytest.mark.parametrize("after_s", _MOMENTS_S)
    async def test_after_an_opening_that_was_cancelled_the_place_opens(self, place: Place, after_s: float) -> None:
        async def open_and_close() -> None:
            async with place.fresh():
                pass

        opening = asyncio.ensure_future(open_and_close())
        await asyncio.wait([opening], timeout=after_s)
        opening.cancel()
        await asyncio.wait([opening])
        assert opening.cancelled() or opening.exception() is None
        async with place.fresh() as terminal:
            assert (await terminal.run("echo in")).stdout == b"in\n"

    @pytest.mark.parametrize("after_s", _MOMENTS_S[:3])
    @needs("kill_tree")
    async def test_a_closing_that_was_cancelled_has_ended_everything(self, place: Place, after_s: float) -> None:
        mark = marker()
        async with place.fresh() as terminal:
            await terminal.run(f"sleep {mark} &")
            closing = asyncio.ensure_future(terminal.close())
            await asyncio.wait([closing], timeout=after_s)
            closing.cancel()
            await asyncio.wait([closing])
            assert closing.cancelled() or closing.exception() is None
        async with place.fresh() as terminal:
            assert await living(terminal, mark) == 0
