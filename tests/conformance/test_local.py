"""This machine, with the guest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing import Conformance
from hermes_exec_backends.local import LocalBackend
from hermes_exec_backends.profiles import LocalProfile
from tests.rigs.agent_task import AgentTask

if TYPE_CHECKING:
    from hermes_exec.backend import Backend


class TestLocal(Conformance, AgentTask):
    column = "`local`"

    @pytest.fixture
    def backend(self) -> Backend:
        return LocalBackend(LocalProfile())
