"""The tables of the core: targets in use, terminals and jobs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hermes_exec.cli.cost import format_cost, sum_costs
from hermes_exec.cli.jobs import HEADS, format_time, job_row, pty_row
from hermes_exec.cli.top.view import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hermes_exec.cli.find_jobs import Guest
    from hermes_exec.cli.top.watch import WatchedGuest, Watcher
    from hermes_exec.terminal.job_status import JobStatus
    from hermes_exec.terminal.pty_status import PtyStatus


@dataclass(frozen=True, slots=True)
class CoreTable:
    """A table of the core."""

    title: str
    heads: tuple[str, ...]
    drop: tuple[str, ...]
    build: Callable[[Watcher], list[Row]]


def list_targets(watcher: Watcher) -> list[Row]:
    """Return the targets in use: those with guests, with terminals of an orchestrator, or billed."""
    targets: dict[str, list[WatchedGuest]] = {}
    for watched in watcher.guests.values():
        targets.setdefault(watched.record.target, []).append(watched)
    for entry in watcher.pooled:
        targets.setdefault(entry.target, [])
    billed = {str(each.get("target", "")): each for each in watcher.billed}
    rows: list[Row] = []
    for target in sorted({*targets, *billed}):
        guests = targets.get(target, [])
        resource = billed.get(target, {})
        states = sorted({each.state for each in guests}) or [str(resource.get("state") or "in use")]
        begun = [each.record.created for each in guests] + _list_times(resource.get("since"))
        rows.append(
            Row(
                target,
                (
                    target,
                    ", ".join(states),
                    str(sum(job.result is None for each in guests if each.guest for job in each.guest.jobs)),
                    str(_count_shells(guests) + sum(entry.target == target for entry in watcher.pooled)),
                    format_time(min(begun)) if begun else "",
                    str(resource.get("size") or ""),
                    _format_price(resource),
                ),
            )
        )
    return rows


def list_terminals(watcher: Watcher) -> list[Row]:
    """Return kept shells, and the terminals of orchestrators."""
    rows: list[Row] = []
    for guest, shell in find_shells(watcher):
        cells = pty_row(guest.record.target, shell)
        rows.append(Row(shell.name, (cells[0], "shell", cells[2], cells[3], cells[6], cells[7])))
    for entry in watcher.pooled:
        state = f"leased to {entry.key}" if entry.key else "idle"
        rows.append(Row(f"pool {entry.id}", (entry.id, "pool", state, "", entry.target, entry.profile)))
    return rows


def list_jobs(watcher: Watcher) -> list[Row]:
    """Return the jobs of all guests: those that run, then those that have ended, the newest first."""
    found = sorted(find_jobs(watcher), key=lambda each: (each[1].result is not None, -each[1].started))
    cells = [(job.id, job_row(guest.record.target, job)) for guest, job in found]
    return [Row(id, tuple(row[at] for at in _OF_JOBS)) for id, row in cells]


def find_jobs(watcher: Watcher) -> list[tuple[Guest, JobStatus]]:
    """Return the jobs of the guests that answered."""
    return [(guest, job) for guest in _list_connected(watcher.guests.values()) for job in guest.jobs]


def find_shells(watcher: Watcher) -> list[tuple[Guest, PtyStatus]]:
    """Return the kept shells of the guests that answered."""
    return [(guest, shell) for guest in _list_connected(watcher.guests.values()) for shell in guest.ptys]


def describe_prices(resources: Sequence[dict[str, Any]], ended_today: float) -> str:
    """Return the sum of the prices of running resources, and the cost since midnight with that of ended ones."""
    running = sum_costs([next(iter(_list_numbers(each.get("hourly_cost"))), None) for each in resources])
    today = sum(cost for each in resources for cost in _list_numbers(each.get("cost_today"))) + ended_today
    return "; ".join([f"running: {running}"] * bool(running) + [f"today: ${today:.4g} so far"] * bool(today))


def _list_connected(guests: Iterable[WatchedGuest]) -> list[Guest]:
    return [each.guest for each in guests if each.guest is not None]


def _count_shells(guests: Iterable[WatchedGuest]) -> int:
    return sum(len(guest.ptys) for guest in _list_connected(guests))


def _list_numbers(value: object) -> list[float]:
    return [float(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


def _list_times(value: object) -> list[float]:
    """Return an ISO 8601 time in seconds since 1970; none if it is not known."""
    try:
        return [datetime.fromisoformat(value).timestamp()] if isinstance(value, str) else []
    except ValueError:
        return []


def _format_price(resource: dict[str, Any]) -> str:
    if not resource:
        return ""
    price = next(iter(_list_numbers(resource.get("hourly_cost"))), None)
    begun = _list_times(resource.get("since"))
    so_far = f" (${price * (time.time() - begun[0]) / 3600:.2f} so far)" if price is not None and begun else ""
    return format_cost(price, estimated=bool(resource.get("price_source"))) + so_far


_OF_JOBS = tuple(at for at, head in enumerate(HEADS) if head != "STARTED")  # TIME says enough here
TABLES = (
    CoreTable(
        "Targets",
        ("TARGET", "STATE", "JOBS", "TERMINALS", "SINCE", "SIZE", "$/HOUR"),
        ("SIZE", "$/HOUR", "SINCE"),
        list_targets,
    ),
    CoreTable(
        "Terminals", ("NAME", "KIND", "STATE", "STARTED", "TARGET", "COMMAND"), ("STARTED", "KIND"), list_terminals
    ),
    CoreTable("Jobs", tuple(HEADS[at] for at in _OF_JOBS), ("OUTPUT", "NAME", "TARGET"), list_jobs),
)
