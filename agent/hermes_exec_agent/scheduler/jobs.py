"""Add, find and change jobs."""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
from typing import TYPE_CHECKING, Any

from hermes_exec.config.check import nearest_name
from hermes_exec.config.paths import to_printable
from hermes_exec.errors import UsageError
from hermes_exec_agent.scheduler.job import Job, JobSpec, check_name, check_spec, find_lateness, suggest_name
from hermes_exec_agent.scheduler.schedule import find_due
from hermes_exec_agent.scheduler.slots import insert_slot, list_open, read_job, skip_waiting

if TYPE_CHECKING:
    from hermes_exec_agent.scheduler.schedule import Schedule
    from hermes_exec_agent.scheduler.storage import CronStore

_MOST_JOBS = 10_000
_MOST_WAITING = 20
"""Jobs of agents that may wait for a person's approval."""


def add_job(
    store: CronStore,
    spec: JobSpec,
    now: float,
    *,
    name: str = "",
    author: str = "",
    origin: dict[str, Any] | None = None,
) -> Job:
    """Add a job; one with an author waits for a person's approval.

    Raises:
        UsageError: it is not valid, is never due from now on, or its name is taken.
    """
    anchor = math.floor(now)
    schedule = check_spec(spec, anchor)
    following = _find_next(schedule, spec, anchor)
    if name:
        check_name(name)
    with store.transaction() as base:
        _check_room(base, author)
        chosen = name or _find_free_name(base, suggest_name(spec))
        values: dict[str, Any] = {
            "name": chosen, "spec": spec.model_dump_json(exclude_defaults=True), "author": author,
            "state": "waiting" if author else "active", "origin": json.dumps(origin or {}), "anchor": anchor,
            "cursor": anchor, "next": following, "late": find_lateness(spec, schedule),
        }  # fmt: skip
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        try:
            added = base.execute(f"INSERT INTO jobs ({names}) VALUES ({marks})", tuple(values.values()))  # noqa: S608  ours
        except sqlite3.IntegrityError:
            raise UsageError(f"there is a job {chosen!r} already", remedy="another --name, or cron edit") from None
        return read_job(base, int(added.lastrowid or 0))


def _check_room(base: sqlite3.Connection, author: str) -> None:
    (jobs,) = base.execute("SELECT count(*) FROM jobs WHERE state <> 'removed'").fetchone()
    (waiting,) = base.execute("SELECT count(*) FROM jobs WHERE state = 'waiting'").fetchone()
    if jobs >= _MOST_JOBS:
        raise UsageError(f"there are {jobs} jobs already", remedy="hermes-exec cron remove NAME")
    if author and waiting >= _MOST_WAITING:
        raise UsageError(f"{waiting} jobs wait for a person already", remedy="ask the person to decide on them")


def _find_free_name(base: sqlite3.Connection, name: str) -> str:
    taken = {row[0] for row in base.execute("SELECT name FROM jobs WHERE state <> 'removed'").fetchall()}
    return next(each for number in range(1, _MOST_JOBS + 2) if (each := f"{name}-{number}" if number > 1 else name)
                not in taken)  # fmt: skip


def _find_next(schedule: Schedule, spec: JobSpec, now: float) -> int:
    following = next(schedule.slots(now), None)
    if following is None:
        raise UsageError(f"the schedule {to_printable(spec.schedule)!r} has no slot from now on", remedy="a later time")
    return following


def list_jobs(store: CronStore, *, with_removed: bool = False) -> list[Job]:
    """Return the jobs, by name."""
    with store.snapshot() as base:
        if base is None:
            return []
        rows = base.execute("SELECT * FROM jobs WHERE ? OR state <> 'removed' ORDER BY name, id", (with_removed,))
        return [Job.from_row(row) for row in rows.fetchall()]


def find_job(store: CronStore, name: str) -> Job:
    """Return a job by its name, or by its number.

    Raises:
        UsageError: there is none.
    """
    jobs = list_jobs(store)
    for job in jobs:
        if name in (job.name, str(job.id)):
            return job
    if jobs:
        nearest = nearest_name(name, [job.name for job in jobs])
        remedy = f"hermes-exec cron list; the nearest one is {nearest}" if nearest else "hermes-exec cron list"
    else:
        remedy = "hermes-exec cron add"
    raise UsageError(f"there is no job {to_printable(name)!r}", remedy=remedy)


def edit_job(store: CronStore, job: Job, spec: JobSpec, now: float, *, name: str = "") -> Job:
    """Change what a job does. With another schedule, slots are counted from now on; earlier ones are recorded before.

    Raises:
        UsageError: it is not valid, is never due from now on, or its name is taken.
    """
    with store.transaction() as base:
        job = read_job(base, job.id)
        is_moved = (spec.schedule, spec.zone) != (job.spec.schedule, job.spec.zone)
        schedule = check_spec(spec, math.floor(now) if is_moved else job.anchor)
        values: dict[str, Any] = {
            "spec": spec.model_dump_json(exclude_defaults=True), "name": check_name(name) if name else job.name,
            "late": find_lateness(spec, schedule),
        }  # fmt: skip
        if is_moved:
            cursor = max(math.floor(now), job.cursor)
            values |= {"anchor": math.floor(now), "cursor": cursor, "next": _find_next(schedule, spec, cursor)}
            if job.state == "ended":
                values["state"] = "active"
            if job.state in ("active", "paused"):
                _skip_range(base, job, "the schedule was changed", now)
        try:
            _update(base, job, **values)
        except sqlite3.IntegrityError:
            raise UsageError(f"there is a job {name!r} already", remedy="another --name") from None
        return read_job(base, job.id)


def pause_job(store: CronStore, job: Job, now: float) -> Job:
    """Record no slots of a job until it is resumed; a run continues.

    Raises:
        UsageError: it is not active.
    """
    with store.transaction() as base:
        job = read_job(base, job.id)
        if job.state != "active":
            raise UsageError(f"the job {job.name!r} is {job.state}", remedy="an active job")
        _update(base, job, state="paused", reason="by a person")
        skip_waiting(base, job.id, "the job is paused", now)
        return read_job(base, job.id)


def resume_job(store: CronStore, job: Job, now: float) -> Job:
    """Record and run the slots of a paused job again; those of the pause are recorded as skipped.

    Raises:
        UsageError: it is not paused, or is never due from now on.
    """
    with store.transaction() as base:
        job = read_job(base, job.id)
        if job.state != "paused":
            raise UsageError(f"the job {job.name!r} is {job.state}", remedy="a paused job")
        following = _find_next(job.schedule, job.spec, max(now, job.cursor))
        _skip_range(base, job, f"the job was paused: {job.reason}", now)
        cursor = math.floor(now)
        _update(base, job, state="active", reason="", failures=0, cursor=max(cursor, job.cursor), next=following)
        return read_job(base, job.id)


def _skip_range(base: sqlite3.Connection, job: Job, reason: str, now: float) -> None:
    """Record the slots up to now that are not recorded as one row."""
    due = find_due(job.schedule, job.cursor, now)
    if due is not None:
        insert_slot(base, job, due.first, "skipped", now, last=due.last, count=due.count, reason=reason)


def approve_job(store: CronStore, job: Job, now: float) -> Job:
    """Accept a job that an agent proposed, as a person shall do; its slots count from now on.

    Raises:
        UsageError: it waits for no approval, was changed since it was shown, or is never due from now on.
    """
    anchor = math.floor(now)
    following = _find_next(check_spec(job.spec, anchor), job.spec, now)
    with store.transaction() as base:
        current = read_job(base, job.id)
        if current.state != "waiting":
            raise UsageError(f"the job {job.name!r} waits for no approval", remedy="hermes-exec cron list")
        if current.revision != job.revision:
            raise UsageError(f"the job {job.name!r} was changed meanwhile", remedy="the same command again")
        _update(base, job, state="active", anchor=anchor, cursor=anchor, next=following)
        return read_job(base, job.id)


def remove_job(store: CronStore, job: Job, now: float) -> None:
    """Remove a job: its run is ended, and its history stays."""
    with store.transaction() as base:
        job = read_job(base, job.id)
        if job.state in ("active", "paused"):
            with contextlib.suppress(UsageError):  # its schedule cannot be read on this machine
                _skip_range(base, job, "the job was removed", now)
        skip_waiting(base, job.id, "the job was removed", now)
        for slot in list_open(base, job.id):
            base.execute("UPDATE slots SET stop = 'the job was removed' WHERE id = ?", (slot.id,))
        _update(base, job, state="removed")


def _update(base: sqlite3.Connection, job: Job, **values: Any) -> None:
    changes = ", ".join(f"{name} = ?" for name in values)
    base.execute(
        f"UPDATE jobs SET {changes}, revision = revision + 1 WHERE id = ?",  # noqa: S608  our names
        (*values.values(), job.id),
    )
