"""One measured figure, and how figures are shown."""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence


@dataclass(frozen=True)
class Figure:
    """Our median beside a reference's, taken in turns in one run."""

    name: str
    unit: str
    ours: float
    reference: str
    theirs: float
    bar: float | None = None
    """What the ratio ours / theirs should stay below, or above where higher is better."""
    better: Literal["lower", "higher"] = "lower"

    @property
    def ratio(self) -> float:
        """Ours / theirs."""
        return self.ours / self.theirs if self.theirs else 0.0

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None without a bar."""
        if self.bar is None:
            return None
        return self.ratio <= self.bar if self.better == "lower" else self.ratio >= self.bar


@dataclass(frozen=True)
class Table:
    """Figures of one kind, with columns of their own."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...] = ()
    """Sentences below it."""


def spent(call: Callable[[], object]) -> float:
    """Seconds that a call took."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


async def spent_async(call: Callable[[], Awaitable[object]]) -> float:
    """Seconds that an awaited call took."""
    begin = time.perf_counter()
    await call()
    return time.perf_counter() - begin


BLOCK = 20
"""How often a command is repeated before it is the next one's turn. One each time would measure how cold a new process
leaves the caches for whoever comes after it."""


def in_turns(rounds: int, *calls: Callable[[], float]) -> list[list[float]]:
    """What each of these calls says that it took, ``rounds`` times each, in turns of ``BLOCK``."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(max(1, rounds // BLOCK)):
        for seconds, call in zip(times, calls, strict=True):
            seconds.extend(call() for _ in range(BLOCK))
    return times


async def in_turns_async(rounds: int, *calls: Callable[[], Awaitable[object]]) -> list[list[float]]:
    """The seconds that each of these awaited calls takes, ``rounds`` times each, in turns of ``BLOCK``."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(max(1, rounds // BLOCK)):
        for seconds, call in zip(times, calls, strict=True):
            for _ in range(BLOCK):
                seconds.append(await spent_async(call))
    return times


def median(values: list[float]) -> float:
    """The median."""
    return statistics.median(values)


def p95(values: list[float]) -> float:
    """The time that 95 of 100 stay below."""
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


def table(figures: list[Figure]) -> str:
    """The figures as a Markdown table."""
    rows = ["| operation | ours | reference | ratio | bar |", "|---|---|---|---|---|"]
    for figure in figures:
        sign = "≤" if figure.better == "lower" else "≥"
        bar = "" if figure.bar is None else f"{sign} {figure.bar:g}{'' if figure.met else ' **missed**'}"
        theirs = f"{figure.reference}: {number(figure.theirs)} {figure.unit}" if figure.reference else ""
        ratio = f"{figure.ratio:.2f}" if figure.reference else ""
        rows.append(f"| {figure.name} | {number(figure.ours)} {figure.unit} | {theirs} | {ratio} | {bar} |")
    return "\n".join(rows)


def number(value: float) -> str:
    """Three digits that matter."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def show(results: Sequence[Figure | Table]) -> str:
    """All results in Markdown, the figures in one table before the others."""
    figures = [each for each in results if isinstance(each, Figure)]
    parts = [table(figures)] if figures else []
    for each in results:
        if isinstance(each, Table):
            lines = [each.headings, ("---",) * len(each.headings), *each.rows]
            parts += [f"**{each.title}**", "\n".join(f"| {' | '.join(line)} |" for line in lines), *each.remarks]
    return "\n\n".join(parts)


def as_json(results: Sequence[Figure | Table]) -> str:
    """The results for machines."""
    return json.dumps([_to_json(each) for each in results], indent=1)


def _to_json(result: Figure | Table) -> dict[str, Any]:
    if isinstance(result, Table):
        return asdict(result)
    return {**asdict(result), "ratio": result.ratio, "met": result.met}
