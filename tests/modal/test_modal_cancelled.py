"""Whoever is cancelled while a sandbox is made or ended leaves none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec_backends.modal import ModalBackend
from tests.modal.conftest import Opened, wait_until_none_is_alive
from tests.rigs import cancelled, modal
from tests.rigs.bounded import until

if TYPE_CHECKING:
    from tests.rigs.apart import Apart


@pytest.mark.parametrize("many", [cancelled.openings, cancelled.closings])
def test_whenever_it_comes_no_sandbox_is_left(run: Any, server: Apart, opened: Opened, many: Any) -> None:
    async def work() -> None:
        await many(lambda: ModalBackend(modal.profile()))
        async with opened() as terminal:
            assert (await terminal.run("echo in")).stdout == b"in\n"

    run(work())
    wait_until_none_is_alive(server, 5.0)


@pytest.mark.parametrize("generation", ["v1", "v2"])
def test_a_sandbox_that_nobody_was_told_of_is_ended(run: Any, server: Apart, generation: str) -> None:
    server.call("fail", "SandboxCreate*", how="hang", when="after")

    async def work() -> None:
        backend = ModalBackend(modal.profile(generation=generation))
        opening = asyncio.ensure_future(hermes_exec.open(backend, audit=False))
        await until(lambda: server.call("alive"))
        opening.cancel()
        await asyncio.wait([opening])
        assert opening.cancelled()

    run(work())
    wait_until_none_is_alive(server, 5.0)
