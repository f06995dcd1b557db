"""Whoever is cancelled while a container is made or removed leaves none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_backends.docker import DockerBackend
from tests.rigs import cancelled
from tests.rigs.docker_engine import DEBIAN

if TYPE_CHECKING:
    from tests.docker.conftest import Opened
    from tests.rigs.docker_engine import Engine


@pytest.mark.parametrize("many", [cancelled.openings, cancelled.closings])
def test_whenever_it_comes_no_container_is_left(run: Any, dock: Engine, opened: Opened, many: Any) -> None:
    async def work() -> None:
        await many(lambda: DockerBackend(dock.profile(DEBIAN)))
        async with opened() as terminal:
            assert (await terminal.run("echo in")).stdout == b"in\n"

    run(work())
    dock.wait_until_none()
