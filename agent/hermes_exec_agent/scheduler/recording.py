"""Record what is due: each slot gets its row before the schedule moves on, in one transaction.

Tickers of all processes do this at the same time. The first one that records a slot moves the job on; the others find
the job changed, and record nothing.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError
from hermes_exec_agent.scheduler.job import Job
from hermes_exec_agent.scheduler.schedule import find_due, format_moment
from hermes_exec_agent.scheduler.slot import MISSED, describe_moment
from hermes_exec_agent.scheduler.slots import (
    deliver_slot,
    end_slot,
    insert_slot,
    list_open,
    read_job,
    release_abandoned,
    renew_waiting,
)

if TYPE_CHECKING:
    import sqlite3

    from hermes_exec_agent.scheduler.schedule import DueSlots, Schedule
    from hermes_exec_agent.scheduler.slot import Slot
    from hermes_exec_agent.scheduler.storage import CronStore

_DAY_S = 86400
"""A clock that went back further begins a new era: the slots from now on are recorded, whatever was recorded before."""
_LONGEST_QUEUE = 100
_DUE = "SELECT * FROM jobs WHERE state = 'active' AND (next <= ? OR cursor > ?) ORDER BY next, id"
_log = logging.getLogger("hermes_exec.cron")


def record_due(store: CronStore, now: float, host: str) -> int:
    """Record all slots that are due, and what killed tickers left; return how many jobs were due.

    A job whose schedule this machine cannot read, as a package is missing, is logged and left to others.
    """
    with store.snapshot() as base:
        if base is None:
            return 0
        jobs = [Job.from_row(row) for row in base.execute(_DUE, (now, now + _DAY_S)).fetchall()]
    planned: list[tuple[Job, Schedule, DueSlots | None]] = []
    for job in jobs:
        try:
            schedule = job.schedule
        except HermesError as error:
            _log.warning("%s: its slots are not recorded here: %s", job.name, error)
            continue
        planned.append((job, schedule, find_due(schedule, job.cursor, now)))
    with store.transaction() as base:
        base.execute(
            "INSERT INTO looks (host, at) VALUES (?, ?) ON CONFLICT (host) DO UPDATE SET at = excluded.at", (host, now)
        )
        release_abandoned(base, now)
        for slot in renew_waiting(base, now):
            _catch_up(base, read_job(base, slot.job), [slot], now)
        for job, schedule, due in planned:
            if read_job(base, job.id).revision == job.revision:
                _record_job(base, job, schedule, due, now)
    return len(planned)


def _record_job(base: sqlite3.Connection, job: Job, schedule: Schedule, due: DueSlots | None, now: float) -> None:
    if job.cursor > now + _DAY_S:
        _begin_era(base, job, schedule, now)
        return
    if due is None:  # the file has another next slot than the schedule: a new version of the time zones
        move_on(base, job, schedule, job.cursor)
        return
    is_on_time = now - due.last <= job.late_s
    missed = _record_missed(base, job, due, now, but_last=is_on_time)
    if is_on_time:
        _record_on_time(base, job, due.last, missed, now)
    else:
        _catch_up(base, job, missed, now)
    move_on(base, job, schedule, due.last)


def move_on(base: sqlite3.Connection, job: Job, schedule: Schedule, cursor: int) -> None:
    """Move the schedule of a job on: all slots up to ``cursor`` are recorded. Part of a transaction."""
    following = next(schedule.slots(cursor), None)
    base.execute(
        "UPDATE jobs SET cursor = ?, next = ?, era = ?, revision = revision + 1,"
        " state = CASE WHEN ? IS NULL AND state = 'active' THEN 'ended' ELSE state END WHERE id = ?",
        (cursor, following, job.era, following, job.id),
    )


def _begin_era(base: sqlite3.Connection, job: Job, schedule: Schedule, now: float) -> None:
    moment = int(now)
    zone = job.spec.zone
    reason = (
        f"the clock went back: slots up to {format_moment(job.cursor, zone)} were recorded before, and are recorded"
        f" again from {format_moment(moment, zone)} on"
    )
    job = replace(job, era=job.era + 1)
    slot = insert_slot(base, job, moment, "skipped", now, cause="clock", reason=reason)
    deliver_slot(base, job, slot, now)
    move_on(base, job, schedule, moment)


def _record_missed(base: sqlite3.Connection, job: Job, due: DueSlots, now: float, *, but_last: bool) -> list[Slot]:
    """Record the slots that were missed; as one row if they are too many."""
    reason = "no ticker looked at its time"
    if due.listed:
        listed = due.listed[:-1] if but_last else due.listed
        return [insert_slot(base, job, slot, "missed", now, reason=reason) for slot in listed]
    count, last = (due.count - 1, due.before_last) if but_last else (due.count, due.last)
    return [insert_slot(base, job, due.first, "missed", now, last=last, count=count, reason=reason)]


def _record_on_time(base: sqlite3.Connection, job: Job, moment: int, missed: list[Slot], now: float) -> None:
    """Record a slot that is due now, by the rule for runs that overlap."""
    note = _describe_missed(job, missed)
    others = list_open(base, job.id)
    why = ""
    if others and job.spec.overlap == "skip":
        why = f"the run of {describe_moment(job, others[0])} has not ended"
    elif others and job.spec.overlap == "queue" and len(others) >= _LONGEST_QUEUE:
        why = f"{len(others)} slots wait before it"
    if why:
        slot = insert_slot(base, job, moment, "skipped", now, reason=why, note=note)
        deliver_slot(base, job, slot, now)
        return
    if job.spec.overlap == "kill":
        _stop_others(base, job, others, moment, now)
    insert_slot(base, job, moment, "claimed", now, lease=now + job.late_s, note=note)


def _stop_others(base: sqlite3.Connection, job: Job, others: list[Slot], moment: int, now: float) -> None:
    reason = f"ended for the slot of {format_moment(moment, job.spec.zone)}"
    for slot in others:
        if slot.owner:
            base.execute("UPDATE slots SET stop = ? WHERE id = ?", (reason, slot.id))
        else:
            end_slot(base, slot, "skipped", reason, now)


def _catch_up(base: sqlite3.Connection, job: Job, missed: list[Slot], now: float) -> None:
    """Do what the job asks for after missed slots: run once, or report them.

    A run reports them itself, so that one message is enough. Nothing runs for a job that is paused, and once is enough
    if another run of the job waits or runs already.
    """
    if job.spec.if_missed == "run" and job.state in ("active", "ended") and not list_open(base, job.id):
        note = _describe_missed(job, missed)
        insert_slot(base, job, int(now), "claimed", now, cause="catch-up", note=note)
        return
    _deliver_missed(base, job, missed, now)


def _deliver_missed(base: sqlite3.Connection, job: Job, missed: list[Slot], now: float) -> None:
    """Write one message about all missed slots."""
    count = sum(slot.count for slot in missed)
    deliver_slot(base, job, replace(missed[-1], slot=missed[0].slot, last=missed[-1].last, count=count), now)


def _describe_missed(job: Job, missed: list[Slot]) -> str:
    count = sum(slot.count for slot in missed)
    if not count:
        return ""
    first, last = (format_moment(moment, job.spec.zone) for moment in (missed[0].slot, missed[-1].last))
    return f"{MISSED}1 slot, {first}" if count == 1 else f"{MISSED}{count} slots from {first} to {last}"
