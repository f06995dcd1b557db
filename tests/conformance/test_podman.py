"""A container of Podman, whose service speaks Docker's API."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing import Conformance
from hermes_exec_backends.docker import DockerBackend
from tests.rigs.agent_task import AgentTask
from tests.rigs.breadth import leave_out
from tests.rigs.podman_engine import podman

if TYPE_CHECKING:
    from hermes_exec.backend import Backend

leave_out("starts an engine")


class TestPodman(Conformance, AgentTask):
    column = "`docker`, of Podman"
    limit_s = 90.0  # Podman starts a process of its own for each exec

    @pytest.fixture
    def backend(self) -> Backend:
        return DockerBackend(podman().profile())

    @pytest.fixture
    def carrier(self) -> str:
        return "guest"
