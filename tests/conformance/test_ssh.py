"""A host over SSH, through paramiko, with the guest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing import Conformance
from hermes_exec_backends.ssh import SshBackend
from tests.rigs.agent_task import AgentTask
from tests.rigs.breadth import leave_out
from tests.rigs.sshd import Sshd

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec.backend import Backend

leave_out("starts an engine")


@pytest.fixture(scope="module")
def sshd() -> Generator[Sshd]:
    with Sshd() as sshd:
        yield sshd


class TestSsh(Conformance, AgentTask):
    column = "`ssh`"

    @pytest.fixture
    def backend(self, sshd: Sshd) -> Backend:
        return SshBackend(sshd.profile())
