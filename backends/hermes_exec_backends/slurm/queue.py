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
_REASONS = {
    "Resources": "its nodes, processors or memory are in use",
    "Priority": "jobs of higher priority come first",
    "BeginTime": "it may not begin yet",
    "Dependency": "another job must end first",
    "Licenses": "a license is in use",
    "PartitionDown": "the partition is down",
    "PartitionTimeLimit": "it asks for more time than the partition allows",
    "PartitionNodeLimit": "it asks for more nodes than the partition has",
    "Reservation": "its reservation has not begun",
    "ReqNodeNotAvail": "a node that it asks for is down or reserved",
    "JobHeldUser": "its user holds it",
    "JobHeldAdmin": "an administrator holds it",
    "AssocGrpCpuLimit": "the account's processors are in use",
    "QOSMaxJobsPerUserLimit": "this user runs the permitted number of jobs",
    "QOSMaxCpuPerUserLimit": "this user has the permitted number of processors",
}
"""Meanings of Slurm's common reasons; see squeue(1)."""
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
    def why_waiting(self) -> str:
        """Slurm's reason for the wait, with its meaning if that is known; empty if Slurm gives none."""
        if self.reason in {"", "None"}:
            return ""
        meaning = _REASONS.get(self.reason, "")
        return f"{self.reason} ({meaning})" if meaning else self.reason

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
    raise build_unavailable("slurm", reply.failure)


def build_unavailable(what: str, failure: str) -> PlaceUnavailable:
    """Return the error for a command of Slurm that failed, with a remedy that fits Slurm's message."""
    remedy = "sinfo, at the target where Slurm's commands are"
    if "configuration source" in failure or "configuration file" in failure:
        remedy = """SLURM_CONF = "/path/of/slurm.conf" in the profile's env, or export it where Slurm's commands are"""
    return PlaceUnavailable(f"{what}: {failure}", remedy=remedy)


def _seconds(text: str) -> float | None:
    match = _LEFT.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24.0 + hours) * 60 + minutes) * 60 + seconds
