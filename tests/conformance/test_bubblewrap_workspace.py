"""A sandbox of bubblewrap under the policy for working shells: rules, filter and bounds take no promise away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing import Conformance
from hermes_exec_backends.bubblewrap import BubblewrapBackend
from hermes_exec_backends.profiles import BubblewrapProfile
from tests.conftest import require_part
from tests.rigs.agent_task import AgentTask
from tests.rigs.breadth import leave_out

if TYPE_CHECKING:
    from hermes_exec.backend import Backend

leave_out("a column of its own")


class TestBubblewrapUnderPolicy(Conformance, AgentTask):
    column = "`bubblewrap` under `workspace`"

    @pytest.fixture
    def backend(self) -> Backend:
        require_part("bwrap", "makes the sandbox")
        return BubblewrapBackend(BubblewrapProfile(policy="workspace"))
