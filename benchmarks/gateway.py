"""The gateway's cost beside the model's: a message until its answer is handed to the platform, and the memory of one.

The platform is in this process and the model answers at once, so neither the way to a messenger nor a model is in these
figures; the files are on this disk.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from benchmarks.figures import Table, median, p95
from tests.rigs.gateway_load import measure_first_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

PERSONS, PLATFORMS = 500, 5
FIRST_BYTE_MS, IDLE_MB = 30, 200


def figures(rounds: int, persons: int = PERSONS) -> Sequence[Table]:
    """Return the table."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"XDG_STATE_HOME": folder}):
        taken, cpu = asyncio.run(measure_first_bytes(Path(folder), rounds))
    argv = [sys.executable, "-m", "tests.rigs.gateway_load", "idle", str(persons), str(PLATFORMS)]
    memory = int(subprocess.run(argv, capture_output=True, check=True).stdout)
    rows = (
        ("message in to first byte out", f"{median(taken) * 1e3:.1f} ms", f"{FIRST_BYTE_MS} ms"),
        ("the same, 95 %", f"{p95(taken) * 1e3:.1f} ms", ""),
        ("processor time of a message", f"{cpu * 1e3:.1f} ms", ""),
        (f"memory, {persons} persons on {PLATFORMS} platforms, idle", f"{memory / 1e6:.0f} MB", f"{IDLE_MB} MB"),
    )
    return [Table("Gateway", ("figure", "measured", "limit"), rows)]
