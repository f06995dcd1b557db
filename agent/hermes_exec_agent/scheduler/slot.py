"""The row of a slot, as it is read, and the texts of messages about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hermes_exec_agent.scheduler.schedule import format_moment

if TYPE_CHECKING:
    import sqlite3

    from hermes_exec_agent.scheduler.job import Job

SlotState = Literal["claimed", "running", "completed", "failed", "skipped", "missed", "unknown"]
Cause = Literal["schedule", "catch-up", "person", "clock"]
"""The schedule; a run after missed slots; a person's command; a change of the clock."""
SILENT = "[SILENT]"
"""In an answer or an output: do not deliver it, if the run was completed."""
MISSED = "missed before: "
"""Begins the note of a run that follows missed slots."""
_LONGEST = 64 << 10


@dataclass(frozen=True, slots=True)
class Slot:
    """A row of the history."""

    id: int
    job: int
    era: int
    slot: int
    """The moment, or the first one of ``count``."""
    last: int
    count: int
    cause: Cause
    state: SlotState
    reason: str
    note: str
    owner: str
    lease: float
    stop: str
    """The reason to end its run; empty if it may continue."""
    recorded: float
    began: float | None
    ended: float | None
    exit_code: int | None
    conversation: str
    cost: float | None
    text: str | None
    """The answer or the output; None without one, or when it is no longer kept."""

    @classmethod
    def from_row(cls, row: sqlite3.Row) -> Slot:
        """Return the slot of a row."""
        return cls(**dict(row))


def compose_end(job: Job, slot: Slot) -> tuple[str, str]:
    """Return the subject and the text of the message about the end of a slot."""
    subject = f"{job.name}: {slot.state}, {describe_moment(job, slot)}"
    lines = [line for line in (slot.reason, slot.note) if line]
    if slot.state == "missed" and job.spec.if_missed == "ask":
        lines.append(f"to run the job once now: hermes-exec cron run {job.name}")
    if slot.conversation:
        lines.append(f"the conversation: hermes-exec conversations show {slot.conversation}")
    text = (slot.text or "").rstrip()
    return subject, "\n".join([*lines, *([""] if lines and text else []), *([text] if text else [])])


def describe_moment(job: Job, slot: Slot) -> str:
    """Return the moment of a slot, or the range of several."""
    first = format_moment(slot.slot, job.spec.zone)
    if slot.count > 1:
        return f"{slot.count} slots from {first} to {format_moment(slot.last, job.spec.zone)}"
    return first


def shorten(text: str, longest: int = _LONGEST) -> str:
    """Return the beginning and the end of a text that is too long to be kept."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters are left out ...]\n{text[-half:]}"
