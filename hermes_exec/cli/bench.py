"""``bench``: measure the speed of a target."""

import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.console import note
from hermes_exec.cli.open_target import open_planned, plan_target
from hermes_exec.cli.options import Json, Target
from hermes_exec.cli.output import show_json, show_table
from hermes_exec.errors import PlaceError
from hermes_exec.terminal.terminal import Terminal

STREAMED = 64 << 20
_OPENS = 3
_STREAMS = 3


@dataclass(frozen=True, slots=True)
class Measurement:
    """The times of repeated runs of one operation."""

    what: str
    times_s: list[float]
    bytes: int = 0
    """Bytes moved by each run."""

    @property
    def median_s(self) -> float:
        """The median time."""
        return statistics.median(self.times_s)

    def to_json(self) -> dict[str, Any]:
        """Return the row of the JSON output."""
        facts: dict[str, Any] = {
            "what": self.what,
            "median_s": round(self.median_s, 7),
            "best_s": round(min(self.times_s), 7),
            "worst_s": round(max(self.times_s), 7),
            "runs": len(self.times_s),
        }
        return facts | ({"bytes_per_s": round(self.bytes / self.median_s)} if self.bytes else {})

    def to_row(self) -> list[str]:
        """Return the row of the table."""
        speed = f"{self.bytes / self.median_s / 1e6:.0f} MB/s" if self.bytes else ""
        times = (self.median_s, min(self.times_s), max(self.times_s))
        return [self.what, *map(format_duration, times), str(len(self.times_s)), speed]


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(bench)


def bench(
    target: Target = None,
    *,
    runs: Annotated[int, typer.Option("--runs", "-n", metavar="N", min=1, help="Run each command N times.")] = 200,
    json: Json = False,
) -> int:
    """Measure a target: opening it, commands of three kinds, and a stream of 64 MiB.

    Nothing is recorded in the audit log. ./dev bench compares the figures with other tools.
    """
    return interruptible.run(_bench(target, runs, json=json))


async def _bench(target: str | None, runs: int, *, json: bool) -> int:
    opens: list[float] = []
    for _ in range(_OPENS):
        began = time.perf_counter()
        async with open_planned(plan_target(target), audit=False) as terminal:
            await terminal.run(["true"])
            opens.append(time.perf_counter() - began)
    async with open_planned(plan_target(target), audit=False) as terminal:
        measurements = [Measurement("open + first command", opens), *await _measure_commands(terminal, runs)]
        name = terminal.target
    if json:
        show_json({"target": name, "measured": [each.to_json() for each in measurements]})
    else:
        note(f"target: {name}")
        show_table(("WHAT", "MEDIAN", "BEST", "WORST", "RUNS", ""), [each.to_row() for each in measurements])
    return 0


async def _measure_commands(terminal: Terminal, runs: int) -> list[Measurement]:
    await terminal.run("true")  # the first command starts the shell
    return [
        Measurement("session: true", await _measure(lambda: terminal.run("true"), runs)),
        Measurement("session: echo hi", await _measure(lambda: terminal.run("echo hi"), runs)),
        Measurement("program: true", await _measure(lambda: terminal.run(["true"]), runs)),
        Measurement("stream 64 MiB", await _measure(lambda: _read_stream(terminal), _STREAMS), STREAMED),
    ]


async def _measure(work: Callable[[], Awaitable[object]], runs: int) -> list[float]:
    times: list[float] = []
    for _ in range(runs):
        began = time.perf_counter()
        await work()
        times.append(time.perf_counter() - began)
    return times


async def _read_stream(terminal: Terminal) -> None:
    received = 0
    async with terminal.stream(["head", "-c", str(STREAMED), "/dev/zero"]) as stream:
        async for event in stream:
            received += len(event.data)
    if received != STREAMED:
        raise PlaceError(f"{received} bytes of {STREAMED} arrived", state="the measurement stopped")


def format_duration(seconds: float) -> str:
    """Format a duration in microseconds, milliseconds or seconds."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
