"""A worker is killed at random moments: each review ends once, and nothing is written twice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rigs.breadth import thorough
from tests.rigs.curator_library import fast_folder


def die(tmp_path: Path, seed: int, deaths: int) -> None:
    root, folder = Path(__file__).parents[2], fast_folder(tmp_path)
    path = os.pathsep.join([*(str(root / name) for name in (".", "backends", "policies", "agent")), *sys.path])
    argv = [sys.executable, "-m", "tests.rigs.review_kills", str(folder), str(seed), str(deaths)]
    try:
        done = subprocess.run(
            argv, env={**os.environ, "PYTHONPATH": path}, cwd=root, check=True, stdout=subprocess.PIPE, text=True
        )
    finally:
        shutil.rmtree(folder)
    seen = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each for each in seen if each["amiss"]] == []
    assert sum(len(each["died"]) for each in seen) >= deaths


@thorough
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_review_that_is_killed_is_done_once_by_the_next_worker(tmp_path: Path) -> None:
    die(tmp_path, seed=1, deaths=20)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2, 6))
def test_the_same_at_200_moments(tmp_path: Path, seed: int) -> None:
    die(tmp_path, seed, deaths=50)
