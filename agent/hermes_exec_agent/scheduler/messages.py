"""The texts of messages about slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec_agent.scheduler.schedule import format_moment

if TYPE_CHECKING:
    from hermes_exec_agent.scheduler.job import Job
    from hermes_exec_agent.scheduler.slot import Slot

SILENT = "[SILENT]"
"""In an answer or an output: do not deliver it, if the run was completed."""
MISSED = "missed before: "
"""Begins the note of a run that follows missed slots."""
_LONGEST = 64 << 10


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
