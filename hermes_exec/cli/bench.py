"""``bench``: how fast a place is, in a few seconds."""

import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.console import note
from hermes_exec.cli.open_target import opened, planned
from hermes_exec.cli.options import Json, Place
from hermes_exec.cli.output import show_json, show_table
from hermes_exec.errors import PlaceError
from hermes_exec.terminal.terminal import Terminal

STREAMED = 64 << 20
_OPENS = 3
_STREAMS = 3


@dataclass(frozen=True, slots=True)
class Measured:
    """The times of one thing that was done again and again."""

    what: str
    times_s: list[float]
    bytes: int = 0
    """What each of them moved."""

    @property
    def median_s(self) -> float:
        """The middle one."""
        return statistics.median(self.times_s)

    @property
    def facts(self) -> dict[str, Any]:
        """For programs."""
        facts: dict[str, Any] = {
            "what": self.what,
            "median_s": round(self.median_s, 7),
            "best_s": round(min(self.times_s), 7),
            "worst_s": round(max(self.times_s), 7),
            "runs": len(self.times_s),
        }
        return facts | ({"bytes_per_s": round(self.bytes / self.median_s)} if self.bytes else {})

    @property
    def row(self) -> list[str]:
        """For people."""
        speed = f"{self.bytes / self.median_s / 1e6:.0f} MB/s" if self.bytes else ""
        times = (self.median_s, min(self.times_s), max(self.times_s))
        return [self.what, *map(readable, times), str(len(self.times_s)), speed]


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(bench)


def bench(
    target: Place = None,
    *,
    runs: Annotated[int, typer.Option("--runs", "-n", metavar="N", min=1, help="How often each command is run.")] = 200,
    json: Json = False,
) -> int:
    """Measure a place: opening it, commands of three kinds, and a stream of 64 MiB.

    Nothing is recorded in the audit. For figures beside the physical floor and other tools, see ./dev bench.
    """
    return interruptible.run(_bench(target, runs, json=json))


async def _bench(target: str | None, runs: int, *, json: bool) -> int:
    opens: list[float] = []
    for _ in range(_OPENS):
        began = time.perf_counter()
        async with opened(planned(target), audit=False) as terminal:
            await terminal.run(["true"])
            opens.append(time.perf_counter() - began)
    async with opened(planned(target), audit=False) as terminal:
        measured = [Measured("open + first command", opens), *await _commands(terminal, runs)]
        name = terminal.target
    if json:
        show_json({"target": name, "measured": [each.facts for each in measured]})
    else:
        note(f"measured in {name}")
        show_table(("WHAT", "MEDIAN", "BEST", "WORST", "RUNS", ""), [each.row for each in measured])
    return 0


async def _commands(terminal: Terminal, runs: int) -> list[Measured]:
    await terminal.run("true")  # the shell itself is started by the first
    return [
        Measured("session: true", await _times(lambda: terminal.run("true"), runs)),
        Measured("session: echo hi", await _times(lambda: terminal.run("echo hi"), runs)),
        Measured("program: true", await _times(lambda: terminal.run(["true"]), runs)),
        Measured("stream 64 MiB", await _times(lambda: _stream(terminal), _STREAMS), STREAMED),
    ]


async def _times(work: Callable[[], Awaitable[object]], runs: int) -> list[float]:
    times: list[float] = []
    for _ in range(runs):
        began = time.perf_counter()
        await work()
        times.append(time.perf_counter() - began)
    return times


async def _stream(terminal: Terminal) -> None:
    received = 0
    async with terminal.stream(["head", "-c", str(STREAMED), "/dev/zero"]) as stream:
        async for event in stream:
            received += len(event.data)
    if received != STREAMED:
        raise PlaceError(f"{received} bytes of {STREAMED} arrived", state="the measurement was given up")


def readable(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
