"""Run a rig that kills its children, and look at what it says of each death."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.rigs.curator_library import fast_folder


def die(rig: str, tmp_path: Path, seed: int, deaths: int) -> None:
    """Run the module ``tests.rigs.RIG``; nothing is amiss after any death, and there are as many as wanted."""
    root, folder = Path(__file__).parents[2], fast_folder(tmp_path)
    path = os.pathsep.join([*(str(root / name) for name in (".", "backends", "policies", "agent")), *sys.path])
    argv = [sys.executable, "-m", f"tests.rigs.{rig}", str(folder), str(seed), str(deaths)]
    try:
        done = subprocess.run(
            argv, env={**os.environ, "PYTHONPATH": path}, cwd=root, check=True, stdout=subprocess.PIPE, text=True
        )
    finally:
        shutil.rmtree(folder)
    seen = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each for each in seen if each["amiss"]] == []
    assert sum(len(each["died"]) for each in seen) >= deaths
