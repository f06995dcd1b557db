"""What it costs to open a place, to import the package, and to ask for help."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import hermes_exec
from benchmarks.figures import Figure, median, spent


async def _open_and_run() -> None:
    async with hermes_exec.open("local", audit=False) as terminal:
        await terminal.run(["/bin/true"])


async def _open(rounds: int) -> tuple[list[float], list[float]]:
    ours: list[float] = []
    floor: list[float] = []
    await _open_and_run()
    for _ in range(rounds):
        floor.append(python("pass"))
        begin = time.perf_counter()
        terminal = await hermes_exec.open("local", audit=False)
        await terminal.run("true")
        ours.append(time.perf_counter() - begin)
        await terminal.close()
    return ours, floor


def python(code: str) -> float:
    """An interpreter that runs one line."""
    return spent(lambda: subprocess.run([sys.executable, "-c", code], check=True))


def figures(rounds: int) -> list[Figure]:
    """Open and first command, import, --help."""
    ours, floor = asyncio.run(_open(rounds))
    imports: list[float] = []
    helps: list[float] = []
    bare: list[float] = []
    command = str(Path(sys.executable).parent / "hermes-exec")
    for _ in range(rounds):
        bare.append(python("pass"))
        imports.append(python("import hermes_exec"))
        helps.append(spent(lambda: subprocess.run([command, "--help"], check=True, capture_output=True)))
    floor_ms = median(bare) * 1e3
    return [
        Figure("open + first command", "ms", median(ours) * 1e3, "`python -c pass`", median(floor) * 1e3, 2.0),
        Figure("`import hermes_exec`", "ms", median(imports) * 1e3, "`python -c pass`", floor_ms, 3.0),
        Figure("`hermes-exec --help`", "ms", median(helps) * 1e3, "a quarter second", 250.0, 1.0),
    ]
