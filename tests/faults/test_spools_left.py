"""Full outputs on this machine's disk, when the process that kept them is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from hermes_exec.testing import SuiteTarget

    Keeper = Callable[[], tuple[subprocess.Popen[str], Path]]

KEEPS = """
import sys, hermes_exec.sync
with hermes_exec.sync.open("local", audit=False) as terminal:
    print(terminal.run("seq 1 1000", max_output=10).truncated["stdout"].spool, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Keeper]:
    """Start a process that has such a file; its folder looks as old as a day."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = os.pathsep.join(filter(None, sys.path))
    started: list[subprocess.Popen[str]] = []

    def start() -> tuple[subprocess.Popen[str], Path]:
        process = subprocess.Popen(
            [sys.executable, "-c", KEEPS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path)},
        )  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        file = Path(process.stdout.readline().strip())
        day_ago = file.stat().st_mtime - 86400
        os.utime(file.parent, (day_ago, day_ago))
        return process, file

    yield start
    for process in started:
        with process:
            process.kill()


def test_those_of_a_killed_process_are_removed_by_the_next_and_no_others(place: SuiteTarget, keeper: Keeper) -> None:
    lives, kept = keeper()
    killed, left = keeper()
    killed.kill()
    killed.wait()

    async def scenario() -> bool:
        terminal = await place.get_shared_terminal()
        result = await terminal.run("seq 1 1000", max_output=10)
        path = result.truncated["stdout"].spool
        return path is not None and Path(path).exists()

    assert left.exists()
    assert place.run(scenario())
    assert not left.parent.exists()
    assert kept.exists()
    lives.communicate("")
    assert not kept.parent.exists()
