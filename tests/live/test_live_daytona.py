"""The whole suite in a real sandbox of Daytona's, the smallest there is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.testing import Conformance
from hermes_exec_backends.daytona import DaytonaBackend
from hermes_exec_backends.daytona.create import delete
from hermes_exec_backends.daytona.service import Service
from hermes_exec_backends.profiles import DaytonaProfile

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from hermes_exec.backend import Backend

pytestmark = pytest.mark.live


async def sweep(tags: dict[str, str]) -> None:
    """Delete every sandbox of these tests on the account."""
    service = Service(DaytonaProfile())
    await service.open()
    try:
        for sandbox in await service.list_sandboxes(tags):
            await delete(sandbox)
    finally:
        await service.close()


@pytest.fixture(scope="module")
def profile(live: Callable[[str], dict[str, Any]]) -> Generator[DaytonaProfile]:
    options = live("daytona")
    asyncio.run(sweep(options["tags"]))
    yield DaytonaProfile(image="python:3.11-slim", cpu=1, memory=1 << 30, disk=3 << 30, **options)
    asyncio.run(sweep(options["tags"]))


class TestLiveDaytona(Conformance):
    column = "`daytona`, live"
    limit_s = 120.0

    @pytest.fixture
    def backend(self, profile: DaytonaProfile) -> Backend:
        return DaytonaBackend(profile)

    @pytest.fixture
    def carrier(self) -> str:
        return "guest"
