"""The curator is killed at random moments: nothing is lost, nothing is archived twice, and the next run continues."""

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
def test_a_run_that_is_killed_loses_nothing_and_is_continued(tmp_path: Path) -> None:
    die("curator_kills", tmp_path, seed=1, deaths=20)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2, 6))
def test_the_same_at_200_moments(tmp_path: Path, seed: int) -> None:
    die("curator_kills", tmp_path, seed, deaths=50)
