"""A sandbox of bubblewrap on this machine: as the user of the tests, and as an ordinary one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing import Conformance
from hermes_exec_backends.bubblewrap import BubblewrapBackend
from hermes_exec_backends.profiles import BubblewrapProfile
from tests.conftest import require_part
from tests.rigs.agent_task import AgentTask

if TYPE_CHECKING:
    from hermes_exec.backend import Backend

_SOMEBODY = 61_200 + os.getpid() % 300
"""A user that nobody else is."""


class TestBubblewrap(Conformance, AgentTask):
    column = "`bubblewrap`"

    @pytest.fixture
    def backend(self) -> Backend:
        require_part("bwrap", "makes the sandbox")
        return BubblewrapBackend(BubblewrapProfile())


class TestBubblewrapAsUser(Conformance, AgentTask):
    column = "`bubblewrap` as an ordinary user"

    @pytest.fixture
    def backend(self) -> Backend:
        require_part("bwrap", "makes the sandbox")
        require_part("root", "becomes an ordinary user", usable=os.geteuid() == 0)
        return BubblewrapBackend(BubblewrapProfile(user=_SOMEBODY))
