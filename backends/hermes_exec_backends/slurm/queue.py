"""Slurm's report of a job, and its meaning for the user of the job."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec.errors import PlaceUnavailable
from hermes_exec.transport.shell.target import run_helper

if TYPE_CHECKING:
    from hermes_exec.backend import Backend

_FORMAT = "hx|%T|%r|%N|%L|%S"
WAITING = frozenset({"PENDING", "CONFIGURING", "RESIZING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})
_ENDS = {
    "TIMEOUT": "its time limit was reached",
    "DEADLINE": "its deadline was reached",
    "NODE_FAIL": "one of its nodes failed",
    "BOOT_FAIL": "one of its nodes did not start",
    "PREEMPTED": "other work took its nodes (preemption)",
    "REVOKED": "it was moved to another cluster",
    "CANCELLED": "it was cancelled",
    "OUT_OF_MEMORY": "it used more memory than it had asked for",
    "SUSPENDED": "it is suspended",
    "STOPPED": "it is stopped",
    "COMPLETED": "it had ended: no client was attached for longer than its lease",
}
# days-hours:minutes:seconds, of which the first parts may be missing
_LEFT = re.compile(r"(?:([0-9]+)-)?(?:([0-9]+):)?([0-9]+):([0-9]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a job."""

    state: str
    """Slurm's own term, such as ``RUNNING``; ``UNKNOWN`` when Slurm has forgotten the job."""
    reason: str = ""
    nodes: str = ""
    """Its nodes, in Slurm's notation."""
    left_s: float | None = None
    """Seconds until its time limit; None when it has none."""
    start: str = ""
    """The time of its start, actual or expected."""

    @property
    def running(self) -> bool:
        """Return whether the job accepts steps."""
        return self.state == "RUNNING"

    @property
    def waiting(self) -> bool:
        """Return whether the job is in the queue."""
        return self.state in WAITING

    @property
    def why_ended(self) -> str:
        """Describe why the job has ended."""
        if self.state in WAITING:
            return "Slurm has put it back into the queue, and what ran in it is lost"
        if self.state == "UNKNOWN":
            return "Slurm does not know it any more"
        why = _ENDS.get(self.state, f"its state is {self.state}")
        return f"{why} ({self.reason})" if self.reason not in {"", "None"} else why


async def standing(outer: Backend, job: str) -> Standing:
    """Query Slurm about a job.

    Raises:
        PlaceUnavailable: Slurm does not answer; includes its error output.
    """
    reply = await run_helper(outer, ["squeue", "--noheader", f"--jobs={job}", "--states=all", f"--format={_FORMAT}"])
    for line in reply.stdout.decode("utf-8", "replace").splitlines():
        fields = line.strip().split("|")
        if fields[0] == "hx" and len(fields) == 6:
            _, state, reason, nodes, left, start = fields
            return Standing(state, reason, nodes, _seconds(left), start)
    if reply.exit.code == 0 or b"Invalid job id" in reply.stderr:
        return Standing("UNKNOWN")
    raise PlaceUnavailable(f"slurm: {reply.failure}", remedy="sinfo, at the target where Slurm's commands are")


def _seconds(text: str) -> float | None:
    match = _LEFT.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24.0 + hours) * 60 + minutes) * 60 + seconds
