"""One cluster for all tests of this folder that do not break it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rigs import slurm

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture(scope="session")
def cluster() -> Generator[slurm.Cluster]:
    """Three nodes."""
    with slurm.cluster() as running:
        yield running
