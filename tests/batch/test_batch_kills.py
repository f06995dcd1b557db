"""The coordinator and the shards are killed at seeded moments, then resumed: each trial has one result."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.rigs.batches import BatchPerson, KilledRun

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(150)
def test_kills_lose_no_trial_and_repeat_none(tmp_path: Path) -> None:
    killed = KilledRun(BatchPerson(tmp_path), 12, on=["local"], seed=int(os.environ.get("HERMES_SOAK_SEED", "3")))
    counts = killed.run(3, concurrency=6, per_shard=3)
    assert counts.total() == 3
    killed.check()
