"""A container that has busybox and nothing else: each command is an exec of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing import Conformance
from hermes_exec_backends.docker import DockerBackend
from tests.rigs.agent_task import AgentTask
from tests.rigs.breadth import leave_out
from tests.rigs.docker_engine import BUSYBOX, engine

if TYPE_CHECKING:
    from hermes_exec.backend import Backend

leave_out("starts an engine")


class TestDockerPlain(Conformance, AgentTask):
    column = "`docker`, no Python there"
    limit_s = 60.0  # each command takes a tenth of a second, and some behaviours take hundreds

    @pytest.fixture
    def backend(self) -> Backend:
        return DockerBackend(engine().profile(BUSYBOX))

    @pytest.fixture
    def carrier(self) -> str:
        return "plain"
