"""Apptainer on this machine: an unpacked tree, an image file, and an image without a Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing import Conformance
from hermes_exec_backends.profiles import SingularityProfile
from hermes_exec_backends.singularity import SingularityBackend
from tests.rigs import apptainer

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec.backend import Backend


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return apptainer.tree(tmp_path_factory.mktemp("tree"))


class TestSingularity(Conformance):
    @pytest.fixture
    def backend(self, tree: Path) -> Backend:
        return SingularityBackend(SingularityProfile(image=str(tree)))
