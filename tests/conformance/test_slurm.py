"""A Slurm allocation on a cluster of this machine, and Apptainer inside of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing import Conformance
from hermes_exec_backends.profiles import SlurmProfile
from hermes_exec_backends.slurm import SlurmBackend
from tests.rigs import slurm
from tests.rigs.agent_task import AgentTask
from tests.rigs.breadth import leave_out

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec.backend import Backend

leave_out("starts an engine")


@pytest.fixture(scope="module")
def cluster() -> Generator[slurm.Cluster]:
    with slurm.cluster() as running:
        yield running


class TestSlurm(Conformance, AgentTask):
    column = "`slurm`"

    @pytest.fixture
    def backend(self, cluster: slurm.Cluster) -> Backend:
        return SlurmBackend(SlurmProfile(memory=1 << 30, lease_s=60.0), cluster.here)
