"""Find the guests that have jobs or kept PTYs, from a process that did not start them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec.cli.console import note
from hermes_exec.cli.open_target import plan_target
from hermes_exec.config.paths import audit_file
from hermes_exec.config.registry import suggest_name
from hermes_exec.errors import HermesError, PlaceUnavailable, UsageError
from hermes_exec.observe.history import find_unfinished
from hermes_exec.terminal.guest_records import read_records, remove_record
from hermes_exec.terminal.job import Job, list_jobs
from hermes_exec.terminal.job_status import JobState
from hermes_exec.terminal.opening import create_guest_transport
from hermes_exec.terminal.output import SpoolFolder
from hermes_exec.terminal.pty_status import PtyStatus, list_ptys
from hermes_exec.terminal.requests import CommandRecord, TerminalContext
from hermes_exec.transport.link import Link

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Container, Iterable

    from hermes_exec.backend import Backend
    from hermes_exec.terminal.guest_records import GuestRecord
    from hermes_exec.terminal.job_status import JobStatus

_LIMIT_S = 60.0
"""Includes the import of an SDK; most targets that cannot be reached fail sooner."""


@dataclass(frozen=True, slots=True)
class Guest:
    """A guest that answered, its jobs, and its PTYs that clients can detach from and attach to."""

    record: GuestRecord
    link: Link
    jobs: list[JobStatus]
    ptys: list[PtyStatus]
    context: TerminalContext
    """The context of the audit records of its jobs."""
    backend: Backend

    def job(self, status: JobStatus) -> Job:
        """Return a job. Its end is recorded when it is seen; of several records the first counts."""
        return Job(self.link, status.id, CommandRecord(self.context, status.id))


@asynccontextmanager
async def guests_with_jobs(
    on: str | None = None, *, known: Container[str] = frozenset[str]()
) -> AsyncGenerator[list[Guest]]:
    """Connect to the guests of one target or of all, the oldest first; a note names each that does not answer.

    Removes the records of guests that are gone. Records whose ids are ``known`` are left out.
    """
    target = None if on is None else plan_target(on).target
    records = [record for record in read_records() if target in {None, record.target} and record.id not in known]
    async with AsyncExitStack() as stack:
        gone: list[GuestRecord] = []
        found = await asyncio.gather(*(_connect(record, stack, gone) for record in records))
        _remove_records(gone)
        yield [guest for guest in found if guest is not None]


@asynccontextmanager
async def connect_guest(record: GuestRecord) -> AsyncGenerator[Guest | None]:
    """Connect to one guest; a note says why it does not answer, if so. Removes the record of a guest that is gone."""
    async with AsyncExitStack() as stack:
        gone: list[GuestRecord] = []
        guest = await _connect(record, stack, gone)
        _remove_records(gone)
        yield guest


async def refresh_guest(guest: Guest) -> None:
    """Read the jobs and kept PTYs of a guest again, and record the ends of jobs."""
    guest.jobs[:] = await list_jobs(guest.link)
    guest.ptys[:] = [pty for pty in await list_ptys(guest.link) if pty.keep_s]
    record_ends([guest])


def record_ends(guests: Iterable[Guest]) -> None:
    """Record the ends of jobs that have no recorded end. An audit log that cannot be read stays unchanged."""
    ended = {job.id: (guest, job.result, job) for guest in guests for job in guest.jobs if job.result is not None}
    if not ended:
        return
    with contextlib.suppress(OSError):
        for id in find_unfinished(audit_file(os.environ), ended):
            guest, result, job = ended[id]
            CommandRecord(guest.context, id).record_end(result, job.stdout_bytes, job.stderr_bytes)


def _remove_records(gone: list[GuestRecord]) -> None:
    """Remove the records of guests that are gone, and name each target once, in one line."""
    for record in gone:
        remove_record(record.id)
    if gone:
        places = ", ".join(dict.fromkeys(record.target for record in gone))
        guests = "the guest is" if len(gone) == 1 else f"{len(gone)} guests are"
        note(f"{places}: {guests} gone, with all remaining jobs")


async def _connect(record: GuestRecord, stack: AsyncExitStack, gone: list[GuestRecord]) -> Guest | None:
    try:
        async with asyncio.timeout(_LIMIT_S):
            plan = await asyncio.to_thread(plan_target, record.target, record.place)  # importing an SDK takes seconds
            await plan.backend.open()
            link = Link(plan.backend, env={}, cwd=None)
            stack.push_async_callback(_disconnect, record, plan.backend, link)
            await link.attach(record.identity, record.interpreter)
            ptys = [pty for pty in await list_ptys(link) if pty.keep_s]
            carrier = create_guest_transport(plan.backend, link)
            context = TerminalContext(
                carrier, plan.target, SpoolFolder(), plan.create_audit(wanted=None), hooks=plan.create_hooks()
            )
            return Guest(record, link, await list_jobs(link), ptys, context, plan.backend)
    except TimeoutError:
        note(f"{record.target}: no answer within {_LIMIT_S:g} s; its jobs are not shown")
    except PlaceUnavailable as error:
        if error.guest_is_gone:
            gone.append(record)
        else:
            note(f"{record.target}: its jobs are not shown: {error}")
    except HermesError as error:
        note(f"{record.target}: its jobs are not shown: {error}")
    return None


async def _disconnect(record: GuestRecord, backend: Backend, link: Link) -> None:
    """Disconnect from a guest. If it has ended, also remove the resource that was created for its jobs."""
    await link.close()
    try:
        await backend.close(keep=link.guest_remains or not record.place)
    except HermesError as error:
        note(str(error))


@asynccontextmanager
async def find_job_or_pty(
    name: str, on: str | None = None, *, newest: bool = False
) -> AsyncGenerator[tuple[Link, Job | PtyStatus]]:
    """Yield the job with this id, or else the PTY or the job of this name, and the link to it.

    Args:
        name: the id or the name.
        on: the target; all targets by default.
        newest: of several jobs with the name take the one that started last, and say so.

    Raises:
        UsageError: there is none, or several that run have the name and ``newest`` is not set.
    """
    async with guests_with_jobs(on) as guests:
        jobs = [(guest, status) for guest in guests for status in guest.jobs]
        ptys = [(guest.link, status) for guest in guests for status in guest.ptys if status.name == name]
        exact = [each for each in jobs if each[1].id == name]
        chosen = exact or [each for each in jobs if name and each[1].name == name]
        if newest and len(chosen) > 1 and not ptys:
            chosen.sort(key=lambda each: each[1].started)
            others = ", ".join(status.id for _, status in chosen[:-1])
            chosen = chosen[-1:]
            note(f"{name}: the newest job of this name, {chosen[0][1].id}; others: {others}")
        if len(chosen) + len(ptys) > 1 and not newest:
            running = [each for each in chosen if each[1].state is not JobState.ENDED]
            chosen = running if running or ptys else chosen
        if len(chosen) + len(ptys) > 1:
            ids = ", ".join([status.id for _, status in chosen] + [status.name for _, status in ptys])
            raise UsageError(f"{len(chosen) + len(ptys)} jobs are named {name!r}", remedy=f"one of the ids {ids}")
        if ptys:
            yield ptys[0]
        elif chosen:
            guest, status = chosen[0]
            yield guest.link, guest.job(status)
        else:
            known = {status.id for _, status in jobs} | {
                each.name for guest in guests for each in guest.jobs + guest.ptys
            }
            near = suggest_name(name, sorted(known - {""}), "; the nearest is")
            raise UsageError(f"there is no job {name!r}{near}", remedy="hermes-exec jobs")


@asynccontextmanager
async def find_job(name: str, on: str | None = None, *, newest: bool = False) -> AsyncGenerator[Job]:
    """Yield the job with this id, or else of this name.

    Raises:
        UsageError: there is none, or several have the name and ``newest`` is not set, or it is a PTY.
    """
    async with find_job_or_pty(name, on, newest=newest) as (_, found):
        if not isinstance(found, Job):
            raise UsageError(f"{name!r} is a shell on a terminal, not a job", remedy=f"hermes-exec attach {name}")
        yield found
