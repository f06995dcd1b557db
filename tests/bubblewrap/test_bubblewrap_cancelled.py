"""Whoever is cancelled while a sandbox is made leaves none, nor a half of one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_exec.testing.place import marker
from hermes_exec_backends.bubblewrap.start import start
from tests.rigs.bounded import until, within
from tests.rigs.processes import runs
from tests.rigs.sandboxes import PYTHON, specification

if TYPE_CHECKING:
    from tests.conftest import Require

run = within(60)


def test_whenever_it_comes_nothing_of_it_is_left(require: Require, somebody: int) -> None:
    """Early on bwrap has a child that waits for its first word, and would wait for ever."""
    require("bwrap", "makes the sandbox")
    name = f"sandbox-{marker()}"

    async def work() -> None:
        for quarters_of_ms in range(80):
            starting = asyncio.ensure_future(start(specification(uid=somebody, hostname=name), [PYTHON, "-c", ""]))
            await asyncio.wait([starting], timeout=quarters_of_ms / 4000)
            starting.cancel()
            await asyncio.wait([starting])
            if not starting.cancelled():
                await starting.result().close()
        await until(lambda: not runs(name), 5)

    run(work())
