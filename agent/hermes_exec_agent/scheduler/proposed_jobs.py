"""What the tool ``cronjob`` does with jobs: propose, list and withdraw them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hermes_exec.errors import UsageError
from hermes_exec_agent.memory.persons import OWNER
from hermes_exec_agent.quoting import quote
from hermes_exec_agent.scheduler.delivery import check_addresses
from hermes_exec_agent.scheduler.job import JobSpec
from hermes_exec_agent.scheduler.jobs import add_job, find_job, list_jobs, remove_job
from hermes_exec_agent.scheduler.runner import plan_job
from hermes_exec_agent.scheduler.schedule import find_local_zone, format_moment
from hermes_exec_agent.scheduler.slots import list_slots
from hermes_exec_agent.tools.envelope import Envelope
from hermes_exec_agent.tools.planning import HERE

if TYPE_CHECKING:
    from hermes_exec_agent.scheduler.job import Job
    from hermes_exec_agent.scheduler.storage import CronStore
    from hermes_exec_agent.tools.tool import Context

_LISTED = 50
_WHAT = 80


def propose(
    store: CronStore, context: Context, *, name: str, schedule: str, prompt: str, command: str, report: str
) -> Envelope:
    """Add a job that waits for a person.

    Raises:
        UsageError: it cannot be scheduled or reported as it is described.
    """
    spec = JobSpec(
        schedule=schedule,
        zone=find_local_zone(),
        prompt=prompt,
        command=command,
        target=context.place,
        deliver=_find_addresses(report, context),
    )
    plan_job(spec)
    origin = {"conversation": context.conversation, **context.provenance.sources_record()}
    author = context.model or "unknown"
    job = add_job(store, spec, time.time(), name=name, author=author, origin=origin)
    following = "" if job.next is None else f", first at {format_moment(job.next, spec.zone)}"
    return Envelope(
        ok=True,
        place=HERE,
        output=f"job {job.name} waits for a person{following}: hermes-exec cron approve {job.name}",
        note="it does not run until then; tell the person",
    )


def _find_addresses(messenger: str, context: Context) -> tuple[str, ...]:
    """Return where reports go: to no one but the person of the conversation, in a messenger that they have used.

    Raises:
        UsageError: the person has no chat there.
    """
    if not messenger:
        return ()
    person = context.participant.name or OWNER
    return check_addresses([f"message:{person}" if messenger == "last" else f"message:{person}@{messenger}"])


def withdraw(store: CronStore, name: str) -> Envelope:
    """Remove a proposal.

    Raises:
        UsageError: only a person removes it.
    """
    job = find_job(store, name)
    if not (job.author and job.state == "waiting"):
        raise UsageError(f"only a person removes the job {job.name!r}", remedy=f"hermes-exec cron remove {job.name}")
    remove_job(store, job, time.time())
    return Envelope(ok=True, place=HERE, output=f"job {job.name} is withdrawn")


def describe_jobs(store: CronStore) -> str:
    """Describe the jobs, a line each."""
    jobs = list_jobs(store)
    lines = [_describe(store, job) for job in jobs[:_LISTED]]
    return "\n".join(lines + [f"{len(jobs) - _LISTED} more"] * (len(jobs) > _LISTED)) or "there is no job"


def _describe(store: CronStore, job: Job) -> str:
    latest = next(iter(list_slots(store, job.id, limit=1)), None)
    following = format_moment(job.next, job.spec.zone) if job.next is not None and job.state == "active" else "-"
    ended = latest.state if latest else "never ran"
    what = quote(job.spec.command or job.spec.prompt, _WHAT)
    return f"{job.name}: {job.state}, {quote(job.spec.schedule)}, next {following}, latest {ended}, {what}"
