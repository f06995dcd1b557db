"""Tickers of several processes share one file, and are killed: no slot is lost, and none runs twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rigs.breadth import thorough
from tests.rigs.tickers import kill_tickers

if TYPE_CHECKING:
    from pathlib import Path

SHARED = pytest.mark.parametrize("shared", [False, True], ids=["wal", "delete"])


@thorough
@pytest.mark.slow
@SHARED
def test_four_tickers_of_which_twelve_are_killed_lose_and_repeat_nothing(tmp_path: Path, shared: bool) -> None:
    found = kill_tickers(tmp_path, jobs=8, minutes=60, kills=12, seconds=15.0, seed=1, shared=shared)
    assert found.amiss == []
    assert found.states["completed"] > found.slots / 4


@pytest.mark.soak
@pytest.mark.timeout(3600)
@SHARED
def test_the_same_with_10_000_slots_and_40_kills(tmp_path: Path, shared: bool) -> None:
    found = kill_tickers(tmp_path, jobs=50, minutes=200, kills=40, seconds=300.0, seed=2, shared=shared)
    assert found.amiss == []
    assert found.states["completed"] > found.slots / 10
