"""Whoever is cancelled while an allocation is asked for or given back leaves none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.rigs import cancelled
from tests.rigs.bounded import wait_until, within
from tests.slurm.test_slurm_life import allocation

if TYPE_CHECKING:
    from tests.rigs.slurm import Cluster


@pytest.mark.parametrize("many", [cancelled.openings, cancelled.closings])
def test_whenever_it_comes_no_allocation_is_left(cluster: Cluster, many: Any) -> None:
    within(50)(many(lambda: allocation(cluster)))
    wait_until(lambda: cluster.jobs() == [], within_s=10)
