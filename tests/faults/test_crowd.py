"""Many shells at once, each of which waits long for its turn on the processor."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.rigs.breadth import IN_FULL, thorough

if TYPE_CHECKING:
    from hermes_exec.testing import SuiteTarget

SHELLS = 1000 if IN_FULL else 250


@thorough
def test_a_shell_that_is_slow_to_run_is_not_taken_for_a_broken_one(place: SuiteTarget) -> None:
    async def crowd() -> None:
        async with place.fresh() as terminal:
            sessions = [await terminal.session() for _ in range(SHELLS)]
            first = await asyncio.gather(*(session.run("echo $$") for session in sessions))
            then = await asyncio.gather(*(session.run("(exit 3); echo $$") for session in sessions))
            assert {(result.exit_code, result.note) for result in (*first, *then)} == {(0, "")}
            assert [result.stdout for result in first] == [result.stdout for result in then]

    place.run(crowd(), 120)
