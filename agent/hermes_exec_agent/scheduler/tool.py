"""The tool by which the agent proposes a scheduled job. A person approves it at a terminal before anything runs."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from pydantic import Field

from hermes_exec.errors import UsageError
from hermes_exec_agent.memory.persons import OWNER
from hermes_exec_agent.quoting import quote
from hermes_exec_agent.scheduler.delivery import check_addresses
from hermes_exec_agent.scheduler.job import JobSpec
from hermes_exec_agent.scheduler.jobs import add_job, find_job, list_jobs, remove_job
from hermes_exec_agent.scheduler.runner import plan_job
from hermes_exec_agent.scheduler.schedule import find_local_zone, format_moment
from hermes_exec_agent.scheduler.slots import list_slots
from hermes_exec_agent.scheduler.storage import CronStore
from hermes_exec_agent.tools.base import BaseTool, ToolArguments
from hermes_exec_agent.tools.envelope import Envelope
from hermes_exec_agent.tools.planning import HERE

if TYPE_CHECKING:
    from hermes_exec_agent.scheduler.job import Job
    from hermes_exec_agent.tools.tool import Context

_LISTED = 50
_WHAT = 80


class CronArguments(ToolArguments):
    """Propose a job that runs at its times once a person approved it; or list jobs, or remove a proposal."""

    action: str = Field(description="create, list or remove")
    name: str = ""
    schedule: str = Field("", description="'30 8 * * mon-fri', 'every 15m' or 'at 2026-12-01T08:00'")
    prompt: str = Field("", description="Request to an agent that knows nothing of this conversation")
    command: str = Field("", description="Or shell text, without a model")
    report: str = Field("", description="Messenger that reports go to, such as slack; 'last' for the one used last")


class CronJob(BaseTool[CronArguments]):
    """Proposes jobs. No call asks for approval, as a person decides on each job at a terminal."""

    name = "cronjob"
    position = 128
    changes = False
    callable_from_scripts = False
    available_to_delegates = False
    arguments_type = CronArguments

    @classmethod
    def is_available(cls, context: Context) -> bool:
        """Whether the configuration lets the agent propose jobs."""
        return context.proposes_jobs

    async def run(self, args: CronArguments, context: Context) -> Envelope:
        """Propose, list or withdraw."""
        with CronStore.of_user() as store:
            if args.action == "list":
                return Envelope(ok=True, place=HERE, output=await asyncio.to_thread(_list, store))
            if args.action == "remove":
                return await asyncio.to_thread(_withdraw, store, args.name)
            if args.action == "create":
                return await asyncio.to_thread(_propose, store, args, context)
        raise UsageError(
            f"cronjob has no action {args.action[:40]!r} for you",
            remedy="create, list or remove; a person does the rest",
        )


def _propose(store: CronStore, args: CronArguments, context: Context) -> Envelope:
    spec = JobSpec(
        schedule=args.schedule,
        zone=find_local_zone(),
        prompt=args.prompt,
        command=args.command,
        target=context.place,
        deliver=_find_addresses(args.report, context),
    )
    plan_job(spec)
    origin = {"conversation": context.conversation, **context.provenance.sources_record()}
    author = context.model or "unknown"
    job = add_job(store, spec, time.time(), name=args.name, author=author, origin=origin)
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


def _withdraw(store: CronStore, name: str) -> Envelope:
    job = find_job(store, name)
    if not (job.author and job.state == "waiting"):
        raise UsageError(f"only a person removes the job {job.name!r}", remedy=f"hermes-exec cron remove {job.name}")
    remove_job(store, job, time.time())
    return Envelope(ok=True, place=HERE, output=f"job {job.name} is withdrawn")


def _list(store: CronStore) -> str:
    jobs = list_jobs(store)
    lines = [_describe(store, job) for job in jobs[:_LISTED]]
    return "\n".join(lines + [f"{len(jobs) - _LISTED} more"] * (len(jobs) > _LISTED)) or "there is no job"


def _describe(store: CronStore, job: Job) -> str:
    latest = next(iter(list_slots(store, job.id, limit=1)), None)
    following = format_moment(job.next, job.spec.zone) if job.next is not None and job.state == "active" else "-"
    ended = latest.state if latest else "never ran"
    what = quote(job.spec.command or job.spec.prompt, _WHAT)
    return f"{job.name}: {job.state}, {quote(job.spec.schedule)}, next {following}, latest {ended}, {what}"
