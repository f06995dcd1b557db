"""Tasks in Harbor's format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.rigs.docker_engine import DEBIAN

if TYPE_CHECKING:
    from pathlib import Path

REWARD = "/logs/verifier/reward"
TEST = f"""#!/bin/bash
[ "$(cat /app/out)" = hello ] && [ "$TESTED" = yes ] && reward=1
echo "${{reward:-0}}" > {REWARD}.txt
"""
DOCKERFILE = f"FROM {DEBIAN}\nWORKDIR /app\n"
CONFIG = 'schema_version = "1.4"\n[metadata]\nlevel = "easy"\n[verifier]\nenv = {TESTED = "yes"}\n'


def write_task(folder: Path, config: str = "", *, test: str = TEST, dockerfile: str = DOCKERFILE) -> Path:
    """Write a task that asks for a file; ``config`` follows the keys of the verifier."""
    for name in ("environment", "tests", "solution"):
        (folder / name).mkdir(parents=True)
    (folder / "instruction.md").write_text("Write hello into /app/out.\n")
    (folder / "task.toml").write_text(CONFIG + config)
    (folder / "environment/Dockerfile").write_text(dockerfile)
    (folder / "tests/test.sh").write_text(test)
    (folder / "solution/solve.sh").write_text("echo hello > /app/out\n")
    return folder
