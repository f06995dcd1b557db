"""A sandbox of bubblewrap in a container, which has to be allowed to make one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing import Conformance
from hermes_exec_backends.bubblewrap import BubblewrapBackend
from hermes_exec_backends.docker import DockerBackend
from hermes_exec_backends.profiles import BubblewrapProfile
from tests.rigs.agent_task import AgentTask
from tests.rigs.breadth import leave_out
from tests.rigs.docker_engine import BUBBLEWRAP, UNCONFINED, engine

if TYPE_CHECKING:
    from hermes_exec.backend import Backend

leave_out("starts an engine")


class TestBubblewrapInDocker(Conformance, AgentTask):
    column = "`bubblewrap` in `docker`"
    limit_s = 60.0  # each new container takes a second on a busy machine

    @pytest.fixture
    def backend(self) -> Backend:
        container = DockerBackend(engine().profile(BUBBLEWRAP, security_opt=UNCONFINED))
        return BubblewrapBackend.nest(BubblewrapProfile(), container)

    @pytest.fixture
    def carrier(self) -> str:
        return "guest"
