"""A thousand sessions in one process, and ten thousand commands in one session."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import hermes_exec
from benchmarks.figures import Figure
from benchmarks.streaming import resident_kib


def _proportional_kib(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(next(line for line in rollup.splitlines() if line.startswith("Pss:")).split()[1])


async def _sessions(count: int) -> list[Figure]:
    async with hermes_exec.open("local", audit=False) as terminal:
        first = await terminal.session()
        guest = int((await first.run("echo $PPID")).stdout)
        before = resident_kib(guest)
        begin = time.perf_counter()
        sessions = [await terminal.session() for _ in range(count)]
        answers = await asyncio.gather(*(session.run("echo $$") for session in sessions))
        opened = time.perf_counter() - begin
        if len({answer.stdout for answer in answers}) != count:
            raise AssertionError("two sessions shared a shell")
        begin = time.perf_counter()
        await asyncio.gather(*(session.run("true") for session in sessions))
        warm = time.perf_counter() - begin
        guest_each = (resident_kib(guest) - before) / count
        shell = _proportional_kib(int(answers[0].stdout))
    return [
        Figure(f"{count} sessions: to open one", "ms", opened / count * 1e3, "", 0),
        Figure(f"{count} sessions: commands", "per s", count / warm, "", 0),
        Figure(f"{count} sessions: guest, each", "KiB", guest_each, "", 0),
        Figure(f"{count} sessions: its shell (PSS)", "KiB", shell, "", 0),
    ]


async def _commands(count: int) -> list[Figure]:
    async with hermes_exec.open("local", audit=False) as terminal:
        session = await terminal.session()
        guest = int((await session.run("echo $PPID")).stdout)

        async def block() -> None:
            for _ in range(count // 2):
                await session.run("true")

        def state() -> tuple[int, int, int]:
            return len(list(Path(f"/proc/{guest}/fd").iterdir())), resident_kib(guest), resident_kib("self")

        await block()
        await asyncio.sleep(0.2)
        before = state()
        begin = time.perf_counter()
        await block()
        took = time.perf_counter() - begin
        await asyncio.sleep(0.2)
        after = state()
    return [
        Figure(f"{count} commands: each", "µs", took / (count // 2) * 1e6, "", 0),
        Figure("… descriptors more in the second half", "", after[0] - before[0], "none", 1.0, 0.0),
        Figure("… guest grew in the second half", "KiB", after[1] - before[1], "256 KiB", 256.0, 1.0),
        Figure("… we grew in the second half", "KiB", after[2] - before[2], "256 KiB", 256.0, 1.0),
    ]


def figures(sessions: int, commands: int) -> list[Figure]:
    """Both."""
    return [*asyncio.run(_sessions(sessions)), *asyncio.run(_commands(commands))]
