"""Nothing is paid for once the last job of a place that was created for it is pruned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from hermes_exec.terminal.guest_records import read_records

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rigs.clouds import Cloud

LIMIT_S = 170
ENDS_S = 40.0
"""Within which Modal's sandbox sees that its last guest has ended; it looks every five seconds."""

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(cloud: Cloud, tmp_path: Path) -> dict[str, str]:
    """That of a person who has the cloud as the profile ``box`` and no jobs."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "HERMES_EXEC_CONFIG": str(cloud.configure(tmp_path)),
    }


@pytest.fixture
def cli(environment: dict[str, str]) -> Cli:
    """``hermes-exec`` in a process of its own, which has to succeed."""

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "hermes_exec", *words]
        done = subprocess.run(
            argv, check=False, capture_output=True, text=True, env=environment, input="", timeout=LIMIT_S
        )
        assert done.returncode == 0, done.stderr
        return done

    return call


def wait_for_none(cloud: Cloud) -> None:
    give_up = time.monotonic() + ENDS_S
    while left := cloud.alive():
        assert time.monotonic() < give_up, f"still there: {left}"
        time.sleep(0.1)


@pytest.mark.parametrize("by", ["attach", "kill"])
def test_pruning_the_last_job_ends_its_sandbox(cloud: Cloud, cli: Cli, environment: dict[str, str], by: str) -> None:
    job = cli("run", "--on", "box", "-d", "--", "true" if by == "attach" else "sleep 1000").stdout.strip()
    cli(by, job)
    assert len(cloud.alive()) == 1  # its log can still be read
    (row,) = json.loads(cli("jobs", "--json").stdout)
    assert row["cost"] > 0 if by == "kill" else row["cost"] is not None  # the other ends at once
    assert "COST" in cli("jobs").stdout
    assert "removed: 1" in cli("jobs", "--prune").stderr
    assert read_records(environment) == []
    wait_for_none(cloud)
