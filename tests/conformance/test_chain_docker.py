"""A container of an engine on a host behind SSH."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing import Conformance
from hermes_exec_backends.docker import DockerBackend
from hermes_exec_backends.ssh import SshBackend
from tests.rigs.agent_task import AgentTask
from tests.rigs.breadth import leave_out
from tests.rigs.docker_engine import engine
from tests.rigs.sshd import Sshd

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec.backend import Backend

leave_out("starts an engine")


@pytest.fixture(scope="module")
def sshd() -> Generator[Sshd]:
    with Sshd() as sshd:
        yield sshd


class TestDockerOverSsh(Conformance, AgentTask):
    column = "`docker` over `ssh`"
    limit_s = 60.0  # each new container takes a second on a busy machine

    @pytest.fixture
    def backend(self, sshd: Sshd) -> Backend:
        host = SshBackend(sshd.profile(user="root"))  # who may use the engine
        return DockerBackend.nest(engine().profile(), host)

    @pytest.fixture
    def carrier(self) -> str:
        return "guest"
