"""A gigabyte of output: how fast it comes, what it costs in memory, and what happens beside it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from pathlib import Path

import hermes_exec
from benchmarks.figures import Figure, median, spent_async
from benchmarks.floors import read_pipe

_PRODUCER = ["head", "-c", "{}", "/dev/zero"]


def _producer(size: int) -> list[str]:
    return [word.format(size) for word in _PRODUCER]


def bare_pipe(size: int) -> float:
    """Bytes a second through a pipe of default size, read by 256 KiB."""
    begin = time.perf_counter()
    with subprocess.Popen(_producer(size), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        fd = process.stdout.fileno()
        while os.read(fd, 256 << 10):
            pass
    return size / (time.perf_counter() - begin)


def resident_kib(pid: int | str) -> int:
    """Memory of a process now."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


async def _stream(terminal: hermes_exec.Terminal, size: int) -> float:
    begin = time.perf_counter()
    got = 0
    async with terminal.stream(_producer(size)) as events:
        async for event in events:
            got += len(event.data)
    if got != size:
        raise AssertionError(f"{got} bytes of {size}")
    return size / (time.perf_counter() - begin)


async def _measure(size: int, rounds: int) -> list[Figure]:
    async with hermes_exec.open("local", audit=False) as terminal:
        session = await terminal.session()
        guest = int((await session.run("echo $PPID")).stdout)
        ours: list[float] = []
        bare: list[float] = []
        floor: list[float] = []
        before = (resident_kib("self"), resident_kib(guest))
        for _ in range(rounds):
            bare.append(bare_pipe(size))
            floor.append(await read_pipe(_producer(size), size))
            ours.append(await _stream(terminal, size))
        grown = max(resident_kib("self") - before[0], resident_kib(guest) - before[1]) / 1024
        beside: list[float] = []
        streaming = asyncio.create_task(_stream(terminal, 2 * size))
        while not streaming.done():
            beside.append(await spent_async(lambda: session.run("true")) * 1e3)
        await streaming
    beside.sort()
    rate = median(ours) / 1e6
    return [
        Figure("1 GB of output", "MB/s", rate, "bare pipe", median(bare) / 1e6, 1.0, "higher"),
        Figure("1 GB of output", "MB/s", rate, "floor: bare pipe, event loop", median(floor) / 1e6, None, "higher"),
        Figure("memory that grew", "MiB", grown, "16 MiB", 16.0, 1.0),
        Figure("`true` meanwhile, median", "ms", median(beside), "5 ms", 5.0, 1.0),
        Figure("`true` meanwhile, p99", "ms", beside[int(len(beside) * 0.99)], "25 ms", 25.0, 1.0),
    ]


def figures(rounds: int, size: int) -> list[Figure]:
    """Throughput, memory, latency beside it."""
    return asyncio.run(_measure(size, rounds))
