"""Servers that do not keep to the protocol: what is known of a call, and what they cannot use up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.rigs.bounded import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.mcp.conftest import Rig, Talking

    Run = Callable[[Awaitable[Any]], Any]


def test_a_call_that_the_server_does_not_read_ends_in_time_and_the_server_is_replaced(
    run: Run, rig: Rig, talking: Talking
) -> None:
    async def use() -> None:
        async with talking(rig.settings(timeout_s=1.0, trust_hints=True)) as talk:
            assert (await talk.call("deaf"))["ok"]
            began = time.monotonic()
            lost = await talk.call("echo", text="x" * 3_000_000)
            assert time.monotonic() - began < 5.0
            assert lost["error"]["type"] == "outcome_unknown"
            await until(lambda: len(rig.seen("starts")) == 2)
            assert (await talk.call("echo", text="back"))["output"] == "back"

    run(use())
    assert rig.seen() == ["deaf", "echo"]
