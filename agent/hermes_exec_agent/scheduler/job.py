"""Jobs: what a person, or an agent with a person's approval, schedules."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, cast

from pydantic import BaseModel, Field

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import UsageError
from hermes_exec_agent.scheduler.schedule import UTC_NAME, parse_schedule

if TYPE_CHECKING:
    import sqlite3

    from hermes_exec_agent.scheduler.schedule import Schedule

IfMissed: TypeAlias = Literal["run", "skip", "ask"]
IF_MISSED: tuple[IfMissed, ...] = ("run", "skip", "ask")
Overlap: TypeAlias = Literal["skip", "queue", "kill"]
OVERLAP: tuple[Overlap, ...] = ("skip", "queue", "kill")
Approve: TypeAlias = Literal["allow", "deny"]
APPROVE: tuple[Approve, ...] = ("allow", "deny")
JobState = Literal["waiting", "active", "paused", "ended", "removed"]
"""It waits for a person's approval; its slots are recorded and run; none are, until it is resumed; its schedule has no
further slot; it was removed, and its history stays."""
TIME_LIMIT_S = 3600.0
PAUSE_AFTER = 5
"""Failures in a row after which a job is paused."""
_LONGEST = 100_000
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
_LEAST_LATE_S = 120.0
_MOST_LATE_S = 900.0


class JobSpec(BaseModel, frozen=True, extra="forbid"):
    """What a job does, and when."""

    schedule: str
    zone: str = UTC_NAME
    prompt: str = ""
    """The request to the agent; empty for a command."""
    command: str = ""
    """Shell text that runs without a model; empty for a request."""
    target: str | None = None
    """Where it runs; the configured default if None."""
    cwd: str | None = None
    """The folder of the target; its own if None."""
    model: str | None = None
    """The name of a model of hermes.toml; the main one if None."""
    skill: str = ""
    """The skill that the agent follows."""
    approve: Approve = "deny"
    """Whether the agent may use tools that change something."""
    budget: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Replies of the model; as configured if None."""
    most_cost: Annotated[float, Field(gt=0)] | None = None
    """US dollars that the models of one run may cost."""
    deliver: tuple[str, ...] = ()
    """The addresses that receive the end of each slot, such as ``file:/path``."""
    time_limit_s: Annotated[float, Field(gt=0)] = TIME_LIMIT_S
    if_missed: IfMissed = "run"
    overlap: Overlap = "skip"
    late_s: Annotated[float, Field(ge=1)] | None = None
    """Seconds after a slot at which it still counts as on time; see `find_lateness`."""

    @property
    def is_command(self) -> bool:
        """Whether it runs without a model."""
        return bool(self.command)


def check_spec(spec: JobSpec, anchor: float) -> Schedule:
    """Check what a job does, and return its schedule.

    Raises:
        UsageError: it has no schedule, does nothing or two things, or has an option that has no effect.
    """
    schedule = parse_schedule(spec.schedule, spec.zone, anchor)
    if bool(spec.prompt.strip()) == bool(spec.command.strip()):
        what = "both a request and a command" if spec.prompt.strip() else "neither a request nor a command"
        raise UsageError(f"the job has {what}", remedy="a request for the agent, or --command TEXT")
    for text in (spec.prompt, spec.command):
        if len(text) > _LONGEST or "\0" in text:
            raise UsageError(f"a request or a command has at most {_LONGEST} characters, and no NUL")
    if spec.is_command:
        ignored = {
            "--model": spec.model is not None,
            "--skill": bool(spec.skill),
            "--budget": spec.budget is not None,
            "--most-cost": spec.most_cost is not None,
            "--approve": spec.approve != "deny",
        }
        if found := [option for option, is_given in ignored.items() if is_given]:
            raise UsageError(f"{', '.join(found)}: a command asks no model", remedy="leave it out")
    return schedule


def find_lateness(spec: JobSpec, schedule: Schedule) -> float:
    """Return the seconds after a slot at which it still counts as on time.

    Half the period by default, but 2 min at least, and 15 min at most.
    """
    if spec.late_s is not None:
        return spec.late_s
    return min(max((schedule.period_s or _MOST_LATE_S * 2) / 2, _LEAST_LATE_S), _MOST_LATE_S)


def check_name(name: str) -> str:
    """Return the name of a job.

    Raises:
        UsageError: it has another form.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{to_printable(name)!r} is not a name", remedy="up to 64 letters, digits and . _ -, a letter first"
        )
    return name


def describe_job(job: Job) -> list[tuple[str, str]]:
    """Return what a person reads before they approve a job: all that it does, and what the agent had read before."""
    spec = job.spec
    facts: list[tuple[str, object]] = [
        ("proposed by", f"the agent with {job.author}" if job.author else ""),
        ("schedule", f"{spec.schedule} ({spec.zone})"),
        ("request", spec.prompt), ("command", spec.command), ("target", spec.target or "the configured default"),
        ("folder", spec.cwd), ("model", spec.model), ("skill", spec.skill),
        ("tools that change something", "" if spec.is_command else spec.approve), ("replies", spec.budget),
        ("deliver", ", ".join(spec.deliver)), ("time limit", f"{spec.time_limit_s:g} s"),
        ("most cost", f"{spec.most_cost:g} $" if spec.most_cost else ""), ("if missed", spec.if_missed),
        ("overlap", spec.overlap), ("missed after", f"{job.late_s:g} s"),
        ("failures in a row", job.failures or ""),
    ]  # fmt: skip
    sources = cast("list[dict[str, object]]", job.origin.get("sources", []))
    facts += [("read before", f"{each.get('tool', '')} {each.get('source', '')}") for each in sources]
    return [(name, str(value)) for name, value in facts if value]


def suggest_name(spec: JobSpec) -> str:
    """Return a name from the first words of what the job does."""
    words = re.findall(r"[a-z0-9]+", (spec.command or spec.prompt).lower())[:4]
    name = "-".join(words)[:40].strip("-")
    return name if _NAME.fullmatch(name) else f"job-{name}".rstrip("-")


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the file has it."""

    id: int
    name: str
    spec: JobSpec
    state: JobState
    reason: str
    """Why it is paused."""
    author: str
    """The model of the agent that proposed it; empty for a person."""
    origin: dict[str, Any] = field(default_factory=dict[str, Any])
    """The conversation that proposed it, and the untrusted sources that it had read."""
    anchor: int = 0
    """The moment from which intervals are counted."""
    era: int = 0
    """Rises each time that the clock went back by more than a day; slots are recorded once in an era."""
    cursor: int = 0
    """The latest moment up to which all slots are recorded."""
    next: int | None = None
    """The next slot."""
    late_s: float = _MOST_LATE_S
    """Seconds after a slot at which it still counts as on time."""
    failures: int = 0
    """In a row."""
    revision: int = 0
    """Changes with each change of the row."""

    @property
    def schedule(self) -> Schedule:
        """Its schedule."""
        return parse_schedule(self.spec.schedule, self.spec.zone, self.anchor)

    @classmethod
    def from_row(cls, row: sqlite3.Row) -> Job:
        """Return the job of a row."""
        return cls(
            row["id"],
            row["name"],
            JobSpec.model_validate_json(row["spec"]),
            row["state"],
            row["reason"],
            row["author"],
            json.loads(row["origin"]),
            row["anchor"],
            row["era"],
            row["cursor"],
            row["next"],
            row["late"],
            row["failures"],
            row["revision"],
        )
