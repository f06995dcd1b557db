"""A place in a place on this machine: composition takes no promise away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing import Conformance
from tests.rigs.agent_task import AgentTask
from tests.rigs.boxes import Box
from tests.rigs.breadth import leave_out

if TYPE_CHECKING:
    from hermes_exec.backend import Backend

leave_out("a column of its own")


class TestChain(Conformance, AgentTask):
    column = "a target inside of a target"

    @pytest.fixture
    def backend(self) -> Backend:
        return Box("inner", Box("outer"))
