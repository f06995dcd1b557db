"""Whoever registers can be killed at any moment: a version is registered whole, or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.rigs.breadth import IN_FULL, thorough

if TYPE_CHECKING:
    from collections.abc import Sequence

_EVERY = 1 if IN_FULL else 9


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("words", "before"), [([], [1]), (["first"], [])])
@thorough
def test_a_kill_at_any_step_leaves_a_version_whole_or_not_at_all(
    tmp_path: Path, words: Sequence[str], before: list[int]
) -> None:
    root = Path(__file__).parents[2]
    path = os.pathsep.join([*(str(root / name) for name in (".", "backends", "policies", "agent")), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "tests.rigs.skill_kills", str(tmp_path), str(_EVERY), *words],
        env={**os.environ, "PYTHONPATH": path},
        cwd=root,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    seen = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each for each in seen if each["amiss"]] == []
    after = [*before, len(before) + 1]
    assert {tuple(each["versions"]) for each in seen} == {tuple(before), tuple(after)}
    assert [each["died"] for each in seen[-2:]] == [True, False]
