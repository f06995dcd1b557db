"""A hundred messages a second for a minute on five platforms: each has one turn and one answer, in its chat's order.

``./dev soak gateway`` is the full form; ``HERMES_SOAK_S`` chooses for how many seconds messages come.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.rigs.gateway_load import flood

if TYPE_CHECKING:
    from pathlib import Path

_FULL_S = float(os.environ.get("HERMES_SOAK_S", "60"))
_PER_S = 100.0
_DRAINED_S = 300.0
_MOST_IDLE = 200 * 10**6


@pytest.mark.parametrize(
    ("seconds", "persons", "platforms"),
    [
        pytest.param(0.6, 4, 2, id="short"),
        pytest.param(_FULL_S, 16, 5, id="full", marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
def test_a_gateway_loses_doubles_and_reorders_nothing_of_a_flood(
    seconds: float, persons: int, platforms: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    figures = asyncio.run(flood(tmp_path, persons, platforms, _PER_S, seconds))
    print(", ".join(f"{name} {value:.1f}" for name, value in figures.items()))
    if seconds >= 60:  # by processor time, so that other work on the machine does not count
        assert figures["cpu_s"] <= seconds + _DRAINED_S


@pytest.mark.soak
def test_a_gateway_of_five_hundred_persons_that_waits_is_small(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tests.rigs.gateway_load", "idle", "500", "5"]
    done = subprocess.run(
        argv, capture_output=True, check=True, timeout=1700, env={**os.environ, "HOME": str(tmp_path)}
    )
    print(f"{int(done.stdout) / 1e6:.0f} MB")
    assert int(done.stdout) <= _MOST_IDLE
