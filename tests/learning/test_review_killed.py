"""A worker is killed at random moments: each review ends once, and nothing is written twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rigs.breadth import thorough
from tests.rigs.deaths import die

if TYPE_CHECKING:
    from pathlib import Path


@thorough
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_review_that_is_killed_is_done_once_by_the_next_worker(tmp_path: Path) -> None:
    die("review_kills", tmp_path, seed=1, deaths=20)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2, 6))
def test_the_same_at_200_moments(tmp_path: Path, seed: int) -> None:
    die("review_kills", tmp_path, seed, deaths=50)
