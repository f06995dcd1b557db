"""Apptainer on this machine: an unpacked tree with Python, and an image file without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing import Conformance
from hermes_exec.testing.suite import CommandsSuite
from hermes_exec_backends.profiles import SingularityProfile
from hermes_exec_backends.singularity import SingularityBackend
from tests.rigs import apptainer
from tests.rigs.agent_task import AgentTask
from tests.rigs.breadth import leave_out

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec.backend import Backend

leave_out("starts an engine")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return apptainer.tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def busybox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("busybox")
    return apptainer.image_file(folder, apptainer.tree(folder, "busybox"))


class TestSingularity(Conformance, AgentTask):
    column = "`singularity`"

    @pytest.fixture
    def backend(self, tree: Path) -> Backend:
        return SingularityBackend(SingularityProfile(image=str(tree)))


class TestSingularityWithoutPython(CommandsSuite, AgentTask):
    """An image file of busybox, so the plain carrier: each command enters the instance anew."""

    @pytest.fixture
    def backend(self, busybox: Path) -> Backend:
        return SingularityBackend(SingularityProfile(image=str(busybox)))
