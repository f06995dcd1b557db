"""``hermes-exec doctor`` tells what a dead orchestrator left, and with ``--reap`` ends it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from tests.rigs.breadth import thorough
from tests.rigs.processes import alive

Killed = Callable[..., AbstractContextManager[list[int]]]


def doctor(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-I", "-m", "hermes_exec", "doctor", *words]
    return subprocess.run(argv, check=False, capture_output=True, text=True)


def told() -> dict[str, str]:
    checks = {check["name"]: check for kind in json.loads(doctor("--json").stdout) for check in kind["checks"]}
    found: dict[str, str] = checks["orchestrators"]
    return found


@thorough
def test_doctor_tells_what_is_left_and_ends_it(tmp_path: Path, killed: Killed, state: Path) -> None:
    with killed(tmp_path) as (first, second):
        before = told()
        assert (before["status"], before["remedy"]) == ("warning", "hermes-exec doctor --reap")
        assert "3 left by orchestrators that died" in before["detail"]
        done = doctor("--reap")
        assert done.stderr.count("a terminal of a dead orchestrator: reaped") == 2
        assert done.stderr.count("a terminal of a dead orchestrator: left, 1 jobs keep running") == 1
        assert (alive(first), alive(second)) == (False, True)
        assert list(state.iterdir()) == []
        assert told()["status"] == "ok"
        (tmp_path / "go").touch()
