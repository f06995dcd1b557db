"""The record of billed targets: one JSON object a line for the start and the end of each, appended and never changed.

It has the costs of targets that have ended, which their vendor no longer lists. It is written where the target was
opened or ended; a target that ended by itself, or was ended by another machine, has no end.
"""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.config.paths import state_folder
from hermes_exec.observe.audit import Appender, get_rotated_path

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

_MAX_BYTES = 4 << 20
_KEEP = 2
_LONGEST = 4096
"""Bytes of a line that is read."""
_HOUR_S = 3600.0
_DAY_S = 86400.0
_log = logging.getLogger("hermes_exec.spending")


@dataclass(frozen=True, slots=True)
class Spent:
    """The cost of targets that have ended, since a moment."""

    cost: float
    """US dollars; a part is an estimate if ``is_estimated``."""
    count: int
    """Targets of known price and end."""
    is_estimated: bool
    unknown: int
    """Targets whose price or end is not known."""


def record_start(target: str, hourly_cost: float | None, price_source: str) -> None:
    """Record that a billed target runs; ``price_source`` is that of an estimate."""
    _append({"event": "start", "target": target, "hourly_cost": hourly_cost, "price_source": price_source})


def record_end(target: str) -> None:
    """Record that a billed target has ended."""
    _append({"event": "end", "target": target})


def sum_spent(since: float, now: float, alive: Collection[str]) -> Spent:
    """Return the cost of the targets that have ended, from ``since`` to ``now``.

    ``alive`` are the targets that still run. A target that started within a day and neither runs nor has an end is
    counted as unknown.
    """
    starts: dict[str, dict[str, Any]] = {}
    cost, count, unknown, estimated = 0.0, 0, 0, False
    for record in _read():
        target, at = record["target"], record["at"]
        if record["event"] == "start":
            lost = starts.get(target)
            unknown += lost is not None and lost["at"] > since
            starts[target] = record
        elif (begun := starts.pop(target, None)) is not None and at > since:
            price = begun.get("hourly_cost")
            if isinstance(price, bool) or not isinstance(price, int | float):
                unknown += 1
                continue
            cost += price * max(0.0, min(at, now) - max(begun["at"], since)) / _HOUR_S
            count += 1
            estimated = estimated or bool(begun.get("price_source"))
    unknown += sum(name not in alive and begun["at"] > now - _DAY_S for name, begun in starts.items())
    return Spent(cost, count, estimated, unknown)


def _find_file() -> Path:
    return state_folder(os.environ) / "spending.jsonl"


def _append(record: dict[str, Any]) -> None:
    """Append a record; one that cannot be written is reported, and stops nothing."""
    appender = Appender(_find_file(), max_bytes=_MAX_BYTES, keep=_KEEP)
    try:
        appender.append(json.dumps({**record, "at": round(time.time(), 3)}).encode() + b"\n")
    except OSError as error:
        _log.warning("the record of costs misses %s: %s", record["target"], error.strerror or error)
    finally:
        appender.close()


def _read() -> Iterator[dict[str, Any]]:
    """Yield the records of the form above, the oldest first."""
    path = _find_file()
    for each in (*(get_rotated_path(path, number) for number in range(_KEEP, 0, -1)), path):
        try:
            with each.open("rb") as file:
                lines = file.read(2 * _MAX_BYTES).splitlines()
        except OSError:
            continue
        for line in lines:
            try:
                value: Any = json.loads(line) if len(line) <= _LONGEST else None
            except (ValueError, RecursionError):
                continue
            record = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
            known = isinstance(record.get("target"), str) and isinstance(record.get("at"), int | float)
            if known and record.get("event") in ("start", "end"):
                yield record
