"""Run the commands of a page of the documentation, and look for the output that it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(sys.executable).with_name("hermes-exec")


def run_page(page: str, home: Path) -> int:
    """Run the commands of its blocks in an empty home folder; return the number of blocks."""
    environ = {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}", "HOME": str(home), "LANG": "C.UTF-8"}
    blocks = re.findall(r"```console\n\$ (.*?)```", page, re.DOTALL)
    for block in blocks:
        for step in block.split("\n$ "):
            command, *shown = step.strip().splitlines()
            done = subprocess.run(
                ["bash", "-c", command], env=environ, cwd=home, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            assert [line for line in shown if line not in done.stdout + done.stderr] == []
    return len(blocks)
