"""The checks of jobs for ``doctor``, which change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec.backend import Check
from hermes_exec.errors import HermesError
from hermes_exec_agent.scheduler.delivery import check_addresses
from hermes_exec_agent.scheduler.jobs import list_jobs
from hermes_exec_agent.scheduler.slots import find_last_look
from hermes_exec_agent.scheduler.storage import CronStore

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.scheduler.job import Job

_STALE_S = 900.0
_WEEK_S = 7 * 86400.0
_NAMED = 3


def examine_jobs(path: Path, now: float) -> list[Check]:
    """Return a row for the jobs, and one for each thing that a person should look at."""
    with CronStore(path) as store:
        jobs = list_jobs(store)
        active = [job for job in jobs if job.state == "active"]
        rows = [*_check_tickers(store, active, now), *_check_states(jobs), *_check_schedules(active)]
        rows += _check_addresses(active)
        rows += _check_ends(store, now)
    counted = f"{len(jobs)} {'job' if len(jobs) == 1 else 'jobs'}, {len(active)} active"
    return rows or [Check("cron", "ok", counted)]


def _check_tickers(store: CronStore, active: list[Job], now: float) -> list[Check]:
    if not active:
        return []
    last = find_last_look(store)
    if last is not None and now - last <= _STALE_S:
        return []
    when = "ever" if last is None else f"for {(now - last) / 60:.0f} min"
    count = "1 job is" if len(active) == 1 else f"{len(active)} jobs are"
    detail = f"{count} active, and no ticker looked for due slots {when}"
    return [Check("cron", "warning", detail, "hermes-exec cron daemon, or a timer as in docs/cron.md")]


def _check_states(jobs: list[Job]) -> list[Check]:
    rows: list[Check] = []
    paused = [job.name for job in jobs if job.state == "paused" and job.failures]
    if paused:
        rows.append(
            Check("cron", "warning", f"paused after failures: {_name(paused)}", f"hermes-exec cron history {paused[0]}")
        )
    waiting = [job.name for job in jobs if job.state == "waiting"]
    if waiting:
        detail = f"jobs of the agent wait for a person: {_name(waiting)}"
        rows.append(Check("cron", "warning", detail, f"hermes-exec cron approve {waiting[0]}"))
    return rows


def _check_schedules(active: list[Job]) -> list[Check]:
    for job in active:
        try:
            next(job.schedule.slots(job.cursor), None)
        except HermesError as error:
            return [Check("cron", "missing", f"{job.name} is not run on this machine: {error.what}", error.remedy)]
    return []


def _check_addresses(active: list[Job]) -> list[Check]:
    jobs = {address: job.name for job in reversed(active) for address in job.spec.deliver}
    rows: list[Check] = []
    for address, name in jobs.items():
        try:
            check_addresses([address])
        except HermesError as error:
            rows.append(Check("cron", "warning", f"{name} cannot deliver to {address}: {error.what}", error.remedy))
    return rows[:_NAMED]


def _check_ends(store: CronStore, now: float) -> list[Check]:
    rows: list[Check] = []
    with store.snapshot() as base:
        if base is None:
            return []
        (lost,) = base.execute(
            "SELECT count(*) FROM deliveries WHERE state = 'failed' AND ended > ?", (now - _WEEK_S,)
        ).fetchone()
        (unknown,) = base.execute(
            "SELECT count(*) FROM slots WHERE state = 'unknown' AND ended > ?", (now - _WEEK_S,)
        ).fetchone()
        (unsure,) = base.execute(
            "SELECT count(*) FROM deliveries WHERE state = 'unknown' AND ended > ?", (now - _WEEK_S,)
        ).fetchone()
    if unsure:
        detail = f"{unsure} deliveries of the last week may have arrived, and are not sent again"
        rows.append(Check("cron", "warning", detail, "hermes-exec cron history; cron show NAME has the text"))
    if lost:
        detail = f"{lost} deliveries of the last week were given up"
        rows.append(Check("cron", "warning", detail, "hermes-exec cron history; cron edit NAME --deliver ADDRESS"))
    if unknown:
        detail = f"{unknown} runs of the last week have an unknown outcome, as their ticker was killed"
        rows.append(Check("cron", "warning", detail, "hermes-exec cron history"))
    return rows


def _name(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
