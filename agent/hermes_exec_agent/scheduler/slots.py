"""Slots: the rows that say what became of each moment at which a job was due.

A slot is ``claimed`` while it waits for a ticker, or for the run before it; ``running``; and ends as ``completed``,
``failed``, ``skipped`` with a reason, ``missed``, or ``unknown`` if its ticker was killed meanwhile. An end is never
changed, but that a ticker which was taken for dead may report the end of a slot that was recorded as unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from hermes_exec_agent.scheduler.holder import LEASE_S, describe_holder, is_gone
from hermes_exec_agent.scheduler.job import PAUSE_AFTER, Job
from hermes_exec_agent.scheduler.outbox import add_messages
from hermes_exec_agent.scheduler.slot import MISSED, SILENT, Slot, SlotState, compose_end

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from hermes_exec_agent.scheduler.storage import CronStore

OPEN = ("claimed", "running")
_KEPT_TEXTS = 50
"""The latest so many texts of a job are kept; its rows are kept all."""
_NO_TICKER = "no ticker took it in time"


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended."""

    state: Literal["completed", "failed", "unknown"]
    text: str = ""
    reason: str = ""
    note: str = ""
    exit_code: int | None = None
    conversation: str = ""
    cost: float | None = None
    counts: bool = True
    """Whether a failure counts for the pause after several ones."""


def insert_slot(base: sqlite3.Connection, job: Job, slot: int, state: SlotState, now: float, **fields: Any) -> Slot:
    """Write a row; part of a transaction."""
    values: dict[str, Any] = {
        "job": job.id, "era": job.era, "slot": slot, "last": slot, "cause": "schedule", "state": state, "recorded": now,
        "ended": None if state in OPEN else now, **fields,
    }  # fmt: skip
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    cursor = base.execute(f"INSERT INTO slots ({names}) VALUES ({marks})", tuple(values.values()))  # noqa: S608  our names
    return _read(base, int(cursor.lastrowid or 0))


def _read(base: sqlite3.Connection, id: int) -> Slot:
    return Slot.from_row(base.execute("SELECT * FROM slots WHERE id = ?", (id,)).fetchone())


def list_open(base: sqlite3.Connection, job: int) -> list[Slot]:
    """Return the slots of a job that have no end yet."""
    rows = base.execute("SELECT * FROM slots WHERE job = ? AND state IN ('claimed', 'running') ORDER BY id", (job,))
    return [Slot.from_row(row) for row in rows]


def read_job(base: sqlite3.Connection, id: int) -> Job:
    """Return a job by its number."""
    return Job.from_row(base.execute("SELECT * FROM jobs WHERE id = ?", (id,)).fetchone())


def end_slot(base: sqlite3.Connection, slot: Slot, state: SlotState, reason: str, now: float) -> None:
    """End a slot that did not run, or whose ticker was killed, and write the messages; part of a transaction."""
    _end_silently(base, slot, state, reason, now)
    deliver_slot(base, read_job(base, slot.job), _read(base, slot.id), now)


def _end_silently(base: sqlite3.Connection, slot: Slot, state: SlotState, reason: str, now: float) -> None:
    base.execute(
        "UPDATE slots SET state = ?, reason = ?, ended = ?, stop = '' WHERE id = ?", (state, reason, now, slot.id)
    )


def skip_waiting(base: sqlite3.Connection, job: int, reason: str, now: float) -> None:
    """Skip the slots of a job that wait; part of a transaction."""
    for slot in list_open(base, job):
        if not slot.owner:
            end_slot(base, slot, "skipped", reason, now)


def deliver_slot(base: sqlite3.Connection, job: Job, slot: Slot, now: float) -> None:
    """Write the messages about the end of a slot; part of a transaction.

    A silent run that follows missed slots reports these, without its text.
    """
    if job.spec.deliver:
        is_silent = slot.state == "completed" and SILENT in (slot.text or "")
        is_suppressed = is_silent and not slot.note.startswith(MISSED)
        subject, body = compose_end(job, replace(slot, text=None) if is_silent and not is_suppressed else slot)
        add_messages(base, slot.id, job.spec.deliver, subject, body, now, is_suppressed=is_suppressed)


# The life of a run


def release_abandoned(base: sqlite3.Connection, now: float) -> None:
    """End what killed tickers held, and release what they took and did not begin; part of a transaction."""
    held = "SELECT * FROM slots WHERE state IN ('claimed', 'running') AND owner <> '' ORDER BY id"
    for slot in [Slot.from_row(row) for row in base.execute(held).fetchall()]:
        if not is_gone(slot.owner, slot.lease, now):
            continue
        if slot.state == "running":
            reason = f"{describe_holder(slot.owner)} was lost while it ran; its outcome is not known"
            end_slot(base, slot, "unknown", reason, now)
        elif slot.cause == "person":
            end_slot(base, slot, "skipped", f"{describe_holder(slot.owner)} was lost before it began", now)
        else:
            late_s = read_job(base, slot.job).late_s
            base.execute("UPDATE slots SET owner = '', lease = ? WHERE id = ?", (now + late_s, slot.id))


def renew_waiting(base: sqlite3.Connection, now: float) -> list[Slot]:
    """Keep the slots that wait, as a ticker looks; end and return those that no ticker has claimed for too long.

    A slot that waits for the end of a run is never late. Part of a transaction, after `release_abandoned`, which also
    writes the messages about the late ones.
    """
    waiting = "SELECT * FROM slots WHERE state = 'claimed' AND owner = '' ORDER BY id"
    late: list[Slot] = []
    for slot in [Slot.from_row(row) for row in base.execute(waiting).fetchall()]:
        is_behind = any(other.owner for other in list_open(base, slot.job))
        if slot.lease < now and slot.cause == "schedule" and not is_behind:
            _end_silently(base, slot, "missed", _NO_TICKER, now)
            late.append(_read(base, slot.id))
        else:
            late_s = read_job(base, slot.job).late_s
            base.execute("UPDATE slots SET lease = ? WHERE id = ?", (now + late_s, slot.id))
    return late


def take_slots(store: CronStore, holder: str, now: float, most: int) -> list[tuple[Job, Slot]]:
    """Take slots that wait, the oldest of each job that has no other run; at most ``most``."""
    if most <= 0:
        return []
    query = (
        "SELECT min(id) FROM slots AS this WHERE state = 'claimed' AND owner = '' AND NOT EXISTS (SELECT 1 FROM slots"
        " AS other WHERE other.job = this.job AND other.state IN ('claimed', 'running') AND other.owner <> '')"
        " GROUP BY job ORDER BY min(id) LIMIT ?"
    )
    with store.snapshot() as base:
        if base is None or not base.execute(query, (1,)).fetchall():
            return []
    with store.transaction() as base:
        taken: list[tuple[Job, Slot]] = []
        for (id,) in base.execute(query, (most,)).fetchall():
            base.execute("UPDATE slots SET owner = ?, lease = ? WHERE id = ?", (holder, now + LEASE_S, id))
            slot = _read(base, id)
            taken.append((read_job(base, slot.job), slot))
        return taken


def begin_slot(store: CronStore, slot: Slot, holder: str, now: float) -> bool:
    """Record that a run begins; return False if another ticker has the slot, or its run has to end."""
    with store.transaction() as base:
        row = _read(base, slot.id)
        if row.state != "claimed" or row.owner != holder:
            return False
        if row.stop:
            end_slot(base, row, "skipped", row.stop, now)
            return False
        base.execute(
            "UPDATE slots SET state = 'running', began = ?, lease = ? WHERE id = ?", (now, now + LEASE_S, slot.id)
        )
        return True


def renew_slots(store: CronStore, holder: str, now: float) -> None:
    """Renew the leases of what this process holds."""
    with store.transaction() as base:
        base.execute(
            "UPDATE slots SET lease = ? WHERE owner = ? AND state IN ('claimed', 'running')", (now + LEASE_S, holder)
        )


def find_stops(store: CronStore, ids: Sequence[int]) -> dict[int, str]:
    """Return the reasons to end runs, by the rows of their slots."""
    marks = ", ".join("?" * len(ids))
    with store.snapshot() as base:
        if base is None:
            return {}
        rows = base.execute(f"SELECT id, stop FROM slots WHERE id IN ({marks}) AND stop <> ''", tuple(ids))  # noqa: S608  marks
        return {row["id"]: row["stop"] for row in rows.fetchall()}


def finish_slot(store: CronStore, slot: Slot, holder: str, result: RunResult, now: float) -> bool:
    """Record the end of a run with its messages; return False if the row is another ticker's."""
    with store.transaction() as base:
        row = _read(base, slot.id)
        if row.owner != holder or row.state not in ("running", "unknown"):
            return False
        if row.state == "unknown" and result.state == "unknown":
            return True
        note = "; ".join(filter(None, (row.note, result.note)))
        job = _count_failures(base, read_job(base, slot.job), result, now)
        if job.state == "paused" and job.failures == PAUSE_AFTER and result.state == "failed":
            note = "; ".join(filter(None, (note, f"the job is paused: {job.reason}")))
        base.execute(
            "UPDATE slots SET state = ?, reason = ?, note = ?, ended = ?, exit_code = ?, conversation = ?, cost = ?,"
            " text = ?, stop = '' WHERE id = ?",
            (result.state, result.reason, note, now, result.exit_code, result.conversation, result.cost, result.text,
             slot.id),
        )  # fmt: skip
        _forget_texts(base, job.id)
        deliver_slot(base, job, _read(base, slot.id), now)
        return True


def _forget_texts(base: sqlite3.Connection, job: int) -> None:
    """Clear the texts of a job but the latest, and those of messages that were delivered or suppressed."""
    row = base.execute(
        "SELECT id FROM slots WHERE job = ? AND text IS NOT NULL ORDER BY id DESC LIMIT 1 OFFSET ?", (job, _KEPT_TEXTS)
    ).fetchone()
    if row is None:
        return
    base.execute("UPDATE slots SET text = NULL WHERE job = ? AND text IS NOT NULL AND id <= ?", (job, row["id"]))
    base.execute(
        "UPDATE deliveries SET body = '' WHERE state IN ('delivered', 'suppressed') AND body <> ''"
        " AND slot IN (SELECT id FROM slots WHERE job = ? AND id <= ?)",
        (job, row["id"]),
    )


def _count_failures(base: sqlite3.Connection, job: Job, result: RunResult, now: float) -> Job:
    """Count failures in a row, and pause the job after several ones; return the job as it is then."""
    if result.state == "completed":
        base.execute("UPDATE jobs SET failures = 0 WHERE id = ?", (job.id,))
    elif result.state == "failed" and result.counts:
        failures = job.failures + 1
        base.execute("UPDATE jobs SET failures = ? WHERE id = ?", (failures, job.id))
        if failures >= PAUSE_AFTER and job.state == "active":
            reason = f"{failures} failures in a row; hermes-exec cron resume {job.name}"
            base.execute(
                "UPDATE jobs SET state = 'paused', reason = ?, revision = revision + 1 WHERE id = ?", (reason, job.id)
            )
            skip_waiting(base, job.id, "the job is paused after failures", now)
    return read_job(base, job.id)


# The history


def list_slots(store: CronStore, job: int | None = None, *, limit: int = 50) -> list[Slot]:
    """Return the latest slots, the newest first."""
    with store.snapshot() as base:
        if base is None:
            return []
        where, values = ("WHERE job = ?", (job,)) if job is not None else ("", ())
        rows = base.execute(f"SELECT * FROM slots {where} ORDER BY id DESC LIMIT ?", (*values, limit))  # noqa: S608  ours
        return [Slot.from_row(row) for row in rows.fetchall()]


def list_deliveries(store: CronStore, slot: int) -> list[dict[str, Any]]:
    """Return the deliveries of a slot as JSON values."""
    with store.snapshot() as base:
        if base is None:
            return []
        rows = base.execute(
            "SELECT address, state, attempts, error FROM deliveries WHERE slot = ? ORDER BY id", (slot,)
        )
        return [dict(row) for row in rows.fetchall()]


def find_last_look(store: CronStore) -> float | None:
    """Return when a ticker looked for due slots the last time; None if none ever did."""
    with store.snapshot() as base:
        row = None if base is None else base.execute("SELECT max(at) FROM looks").fetchone()
        return None if row is None else row[0]
