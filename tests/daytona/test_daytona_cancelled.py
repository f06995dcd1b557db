"""Whoever is cancelled while a sandbox is made or deleted leaves none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.rigs import cancelled

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec_backends.daytona import DaytonaBackend
    from tests.daytona.conftest import Opened
    from tests.rigs.daytona_server import Daytona


@pytest.mark.parametrize("many", [cancelled.openings, cancelled.closings])
def test_whenever_it_comes_no_sandbox_is_left(
    run: Any, daytona: Daytona, backend: Callable[[], DaytonaBackend], opened: Opened, many: Any
) -> None:
    async def work() -> None:
        await many(backend)
        assert not daytona.sandboxes
        async with opened() as terminal:
            assert (await terminal.run("echo in")).stdout == b"in\n"

    run(work())
