"""A container with a Python, so with the guest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing import Conformance
from hermes_exec_backends.docker import DockerBackend
from tests.rigs.agent_task import AgentTask
from tests.rigs.breadth import leave_out
from tests.rigs.docker_engine import engine

if TYPE_CHECKING:
    from hermes_exec.backend import Backend

leave_out("starts an engine")


class TestDocker(Conformance, AgentTask):
    column = "`docker`"
    limit_s = 60.0  # each new container takes a second on a busy machine

    @pytest.fixture
    def backend(self) -> Backend:
        return DockerBackend(engine().profile())

    @pytest.fixture
    def carrier(self) -> str:
        return "guest"
