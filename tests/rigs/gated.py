"""Judge every item of files of the corpus to the end: ``python -m tests.rigs.gated skills tricks``; a line for each."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from hermes_exec_policies.gate.check import check
from hermes_exec_policies.gate.verdict import Kind
from tests.rigs import corpus

_AT_ONCE = 2


async def judged(item: dict[str, Any], turn: asyncio.Semaphore) -> str:
    """One line: its verdict, and what decided it."""
    async with turn:
        with tempfile.TemporaryDirectory(prefix="gated-") as room:
            report = await check(corpus.skill(item, Path(room)))
    codes = sorted({each.code for each in report.findings if each.kind is not Kind.ADVICE})
    return f"{report.outcome:10} {item['id']:28} {report.digest[:12]} {' '.join(codes)}"


async def main(names: list[str]) -> None:
    """Judge all, two at a time."""
    turn = asyncio.Semaphore(_AT_ONCE)
    waiting = [judged(item, turn) for name in names for item in corpus.items(name)]
    for each in asyncio.as_completed(waiting):
        print(await each, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
