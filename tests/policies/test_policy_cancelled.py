"""Attempts are made in several sandboxes at once; whoever stops waiting for them leaves none."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from hermes_exec._async import gather_or_cancel
from hermes_exec_policies.canaries.prove import prove
from hermes_exec_policies.load import load_policy
from tests.rigs.bounded import until
from tests.rigs.processes import children

if TYPE_CHECKING:
    from tests.conftest import Require


def test_where_one_of_several_fails_the_others_have_ended() -> None:
    ended: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            ended.append("slow")

    async def failing() -> None:
        await asyncio.sleep(0)
        raise OSError("failed")

    async def main() -> None:
        with pytest.raises(OSError, match="failed"):
            await gather_or_cancel([slow(), failing(), slow()])
        assert ended == ["slow", "slow"]

    asyncio.run(main())


@pytest.mark.parametrize("pause_s", [0.0, 0.1, 0.2, 0.4])
def test_a_proof_that_is_cancelled_leaves_no_sandbox(require: Require, pause_s: float) -> None:
    require("bwrap", "makes the sandboxes")

    async def main() -> None:
        before = set(children(os.getpid()))
        proof = asyncio.create_task(prove(load_policy("skill-run"), again=True))
        await until(lambda: set(children(os.getpid())) > before)
        await asyncio.sleep(pause_s)
        proof.cancel()
        await asyncio.wait([proof])
        assert proof.cancelled()
        assert set(children(os.getpid())) == before

    asyncio.run(main())
