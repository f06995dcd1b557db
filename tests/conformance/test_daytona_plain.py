"""A sandbox of Daytona without a guest: each command is a program of its own, started by the relay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing import Conformance
from hermes_exec_backends.daytona import DaytonaBackend
from tests.rigs import daytona_rig
from tests.rigs.agent_task import AgentTask

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec.backend import Backend
    from tests.rigs.daytona_server import Daytona


@pytest.fixture(scope="module")
def daytona() -> Generator[Daytona]:
    yield from daytona_rig.checked()


class TestDaytonaPlain(Conformance, AgentTask):
    column = "`daytona`, no guest"

    @pytest.fixture
    def backend(self, daytona: Daytona) -> Backend:
        return DaytonaBackend(daytona_rig.profile(daytona))

    @pytest.fixture
    def carrier(self) -> str:
        return "plain"
