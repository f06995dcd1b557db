"""Apptainer on a host behind SSH: two real places, one in the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing import Conformance
from hermes_exec_backends.profiles import SingularityProfile
from hermes_exec_backends.singularity import SingularityBackend
from hermes_exec_backends.ssh import SshBackend
from tests.rigs import apptainer
from tests.rigs.agent_task import AgentTask
from tests.rigs.breadth import leave_out
from tests.rigs.sshd import Sshd

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from hermes_exec.backend import Backend

leave_out("starts an engine")


@pytest.fixture(scope="module")
def sshd() -> Generator[Sshd]:
    with Sshd() as sshd:
        yield sshd


@pytest.fixture(scope="module")
def tree(sshd: Sshd) -> Path:
    return apptainer.tree(sshd.folder / "images")


class TestSingularityOverSsh(Conformance, AgentTask):
    column = "`singularity` over `ssh`"
    limit_s = 60.0  # a new container takes a second on a busy machine

    @pytest.fixture
    def backend(self, sshd: Sshd, tree: Path) -> Backend:
        return SingularityBackend(SingularityProfile(image=str(tree)), SshBackend(sshd.profile()))
