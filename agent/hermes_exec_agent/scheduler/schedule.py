"""Schedules: the slots at which a job is due, in seconds since 1970.

====================  ============================================================================================
``30 8 * * mon-fri``  five fields by the rules of Debian's cron, which `cronsim` implements, in the job's time zone
``@daily``            a name for five fields; also ``@hourly``, ``@weekly``, ``@monthly`` and ``@yearly``
``every 15m``         a fixed interval, counted from the moment at which the job was added
``at 2026-12-01T08:00``  once
====================  ============================================================================================
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hermes_exec.cli.arguments import parse_duration
from hermes_exec.config.paths import to_printable
from hermes_exec.errors import UsageError
from hermes_exec.extras import require

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SHORTEST_S = 60
LONGEST_S = 3650 * 86400
"""Ten years: the longest interval."""
_YEARS = range(1970, 3000)
_EXAMPLES = "'0 8 * * mon-fri', 'every 15m' or 'at 2026-12-01T08:00'"
_NAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
MANY = 1000
"""So many due slots, or more, are not listed one by one."""
UTC_NAME = "UTC"


class Schedule(Protocol):
    """The slots of a job."""

    def slots(self, after: float) -> Iterator[int]:
        """Yield the slots after a moment, the earliest first."""
        ...

    @property
    def period_s(self) -> float | None:
        """The usual number of seconds between two slots; None for a single one."""
        ...


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """Five fields in a time zone."""

    fields: str
    zone: tzinfo

    def slots(self, after: float) -> Iterator[int]:
        """Yield the slots after a moment.

        cronsim counts fixed times on the clock of the wall, so that its first results may repeat what came before.
        """
        from cronsim import CronSim

        latest = after
        for found in CronSim(self.fields, datetime.fromtimestamp(math.floor(after), self.zone)):
            slot = int(found.timestamp())
            if slot > latest:
                latest = slot
                yield slot

    @property
    def period_s(self) -> float | None:
        """The number of seconds between the first two slots of the epoch."""
        first = list(itertools.islice(self.slots(0.0), 2))
        return float(first[1] - first[0]) if len(first) > 1 else None


@dataclass(frozen=True, slots=True)
class IntervalSchedule:
    """A fixed interval, from ``anchor`` on, which is not a slot itself."""

    interval_s: int
    anchor: int

    def slots(self, after: float) -> Iterator[int]:
        """Yield the slots after a moment."""
        number = max(math.floor((after - self.anchor) / self.interval_s), 0) + 1
        return itertools.count(self.anchor + number * self.interval_s, self.interval_s)

    @property
    def period_s(self) -> float | None:
        """The interval."""
        return float(self.interval_s)


@dataclass(frozen=True, slots=True)
class SingleSchedule:
    """One moment."""

    moment: int

    def slots(self, after: float) -> Iterator[int]:
        """Yield the moment if it is later."""
        return iter([self.moment] if self.moment > after else [])

    @property
    def period_s(self) -> float | None:
        """There is none."""
        return None


def parse_schedule(text: str, zone: str, anchor: float) -> Schedule:
    """Parse a schedule; ``anchor`` is the moment from which intervals are counted.

    Raises:
        UsageError: it has another form, or is never due; or there is no such time zone.
        MissingExtra: it needs cronsim, which is not installed.
    """
    text = normalize_schedule(text)
    where = find_zone(zone)
    kind, _, rest = text.partition(" ")
    if kind == "every":
        return IntervalSchedule(_parse_interval(rest), math.floor(anchor))
    if kind == "at":
        return SingleSchedule(_parse_moment(rest, where, zone))
    fields = _NAMES.get(text.lower(), text)
    if len(fields.split()) != 5:  # cronsim takes a sixth one, with seconds
        raise UsageError(f"{to_printable(text)!r} is not a schedule", remedy=_EXAMPLES)
    return _parse_cron(fields, where)


def normalize_schedule(text: str) -> str:
    """Return the text with single spaces."""
    return " ".join(text.split())


def _parse_cron(fields: str, zone: tzinfo) -> CronSchedule:
    require("cron", "a schedule of five fields")
    from cronsim import CronSimError

    schedule = CronSchedule(fields, zone)
    try:
        first = next(schedule.slots(0.0), None)
    except CronSimError as error:
        raise UsageError(f"the schedule {to_printable(fields)!r}: {str(error).lower()}", remedy=_EXAMPLES) from error
    if first is None:
        raise UsageError(f"the schedule {to_printable(fields)!r} is never due", remedy=_EXAMPLES)
    return schedule


def _parse_interval(text: str) -> int:
    seconds = parse_duration(text)
    if not _SHORTEST_S <= seconds <= LONGEST_S or seconds != int(seconds):
        raise UsageError(f"every {to_printable(text)}: an interval is {_SHORTEST_S} s to 3650d", remedy="every 15m")
    return int(seconds)


def _parse_moment(text: str, zone: tzinfo, name: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or ":" not in text:
        raise UsageError(f"at {to_printable(text)}: not a date and a time", remedy="at 2026-12-01T08:00")
    if moment.year not in _YEARS:
        raise UsageError(f"at {to_printable(text)}: a year is 1970 to {_YEARS[-1]}", remedy="at 2026-12-01T08:00")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
        back = moment.astimezone(UTC).astimezone(zone)
        if back.replace(tzinfo=None) != moment.replace(tzinfo=None):
            raise UsageError(
                f"at {to_printable(text)}: the clocks of {name} skip this time", remedy=f"at {back:%Y-%m-%dT%H:%M}"
            )
    return math.floor(moment.timestamp())


# Time zones


def find_zone(name: str) -> tzinfo:
    """Return a time zone.

    Raises:
        UsageError: there is none of this name.
    """
    if name == UTC_NAME:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(
            f"there is no time zone {to_printable(name)!r} on this machine",
            remedy="a name such as Europe/Berlin, or UTC; the system's package tzdata has them",
        ) from error


def find_local_zone(environ: Mapping[str, str] = os.environ, etc: Path = Path("/etc")) -> str:
    """Return the name of this machine's time zone; UTC where none is set."""
    link = ""
    with contextlib.suppress(OSError):
        link = str((etc / "localtime").readlink()).partition("zoneinfo/")[2]
    for name in (environ.get("TZ", "").removeprefix(":"), link, _read_line(etc / "timezone")):
        try:
            if name:
                find_zone(name)
                return name
        except UsageError:
            continue
    return UTC_NAME


def _read_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def format_moment(moment: float, zone: str) -> str:
    """Return a moment in a time zone, as ISO 8601 with minutes, and with seconds if it has any."""
    found = datetime.fromtimestamp(math.floor(moment), find_zone(zone))
    return found.isoformat(timespec="seconds" if found.second else "minutes")


# Due slots


@dataclass(frozen=True, slots=True)
class DueSlots:
    """The slots between two moments."""

    first: int
    last: int
    count: int
    listed: tuple[int, ...]
    """All of them; empty if they are too many."""
    before_last: int
    """The last but one; the first if there is one alone."""


def find_due(schedule: Schedule, after: float, now: float) -> DueSlots | None:
    """Return the slots after one moment and up to another; None if there is none."""
    if isinstance(schedule, IntervalSchedule):
        return _find_due_of_interval(schedule, after, now)
    listed: list[int] = []
    count, before_last, last = 0, 0, 0
    for slot in schedule.slots(after):
        if slot > now:
            break
        count, before_last, last = count + 1, last or slot, slot
        if count <= MANY:
            listed.append(slot)
    if not listed:
        return None
    return DueSlots(listed[0], last, count, tuple(listed) if count < MANY else (), before_last)


def _find_due_of_interval(schedule: IntervalSchedule, after: float, now: float) -> DueSlots | None:
    first = next(schedule.slots(after))
    if first > now:
        return None
    count = math.floor((now - first) / schedule.interval_s) + 1
    last = first + (count - 1) * schedule.interval_s
    listed = tuple(range(first, last + 1, schedule.interval_s)) if count < MANY else ()
    return DueSlots(first, last, count, listed, max(last - schedule.interval_s, first))
