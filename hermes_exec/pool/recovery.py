"""Recovery of a dead orchestrator's terminals: attach to guests that have jobs, and end the others.

A guest keeps running when the process that opened it is killed: its jobs until they are done, all else until its
lease ends. The next orchestrator does not wait for that. It ends everything that the dead one ran except jobs, since
the results can no longer be collected, and never starts any of it again.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from hermes_exec.backend import release
from hermes_exec.errors import HermesError, PlaceError, PlaceUnavailable
from hermes_exec.pool.pooled_terminal import plan_terminal
from hermes_exec.terminal.job import list_jobs
from hermes_exec.transport.link import Link

if TYPE_CHECKING:
    from hermes_exec.config.plan import Plan
    from hermes_exec.pool.journal import JournalEntry
    from hermes_exec.pool.lease import Lease
    from hermes_exec.pool.options import Pool
    from hermes_exec.terminal.guest_records import GuestRecord
    from hermes_exec.terminal.job_status import JobStatus

_PATIENCE_S = 20.0
_log = logging.getLogger("hermes_exec.pool")


class Fate(StrEnum):
    """The outcome of recovering one terminal of a dead orchestrator."""

    ATTACHED = "attached"
    """Its guest has jobs or kept programs, and can be used again."""
    LEFT = "left"
    """Its guest has jobs or kept programs, which keep running (`hermes-exec jobs`); all else in it was ended."""
    REAPED = "reaped"
    """It still existed, without jobs; everything in it was ended."""
    GONE = "gone"
    """It no longer existed."""
    UNREACHABLE = "unreachable"
    """The target does not answer now; the next start tries again."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """One terminal that a dead orchestrator had open. Commands that ran on it, except jobs, have an unknown outcome."""

    profile: str
    key: str
    """Whom it was handed out to."""
    target: str
    fate: Fate
    jobs: tuple[JobStatus, ...] = ()
    """Running, or ended and not pruned yet."""
    lease: Lease | None = None
    """The terminal, if it was attached; release it when it is no longer needed."""
    note: str = ""
    """Why, where that is not plain."""


@dataclass(frozen=True, slots=True)
class AttachedGuest:
    """A guest with jobs, and the link that is attached to it."""

    entry: JournalEntry
    plan: Plan
    link: Link
    jobs: tuple[JobStatus, ...]


async def recover(entry: JournalEntry, pool: Pool, *, attach: bool) -> AttachedGuest | Recovered:
    """End everything but jobs on one terminal of a dead orchestrator; ``pool`` describes how to reach it.

    With ``attach``, a guest that has jobs is returned attached, so that it can be used again.
    """
    guest = entry.guest
    lost = Recovered(entry.profile, entry.key, entry.target, Fate.GONE)
    if guest is None:
        return replace(lost, note="a target without a Python keeps nothing")
    try:
        async with asyncio.timeout(_PATIENCE_S):
            plan = await plan_terminal(pool, guest.place)
            await plan.backend.open()
            try:
                return await _settle(entry, guest, plan, attach=attach)
            except BaseException:
                await release(plan.backend)
                raise
    except TimeoutError:
        return replace(lost, fate=Fate.UNREACHABLE, note=f"no answer within {_PATIENCE_S:g} s")
    except PlaceUnavailable as error:
        return replace(lost, fate=Fate.GONE if error.guest_is_gone else Fate.UNREACHABLE, note=error.what)
    except (HermesError, OSError) as error:
        return replace(lost, fate=Fate.UNREACHABLE, note=str(error))


async def _settle(entry: JournalEntry, guest: GuestRecord, plan: Plan, *, attach: bool) -> AttachedGuest | Recovered:
    link = Link(plan.backend, env=plan.env, cwd=plan.cwd, lease_s=plan.lease_s, python=plan.python)
    await link.attach(guest.identity, guest.interpreter)
    try:
        await _end_client(plan, guest, bytes.fromhex(entry.client))
        jobs = tuple(await list_jobs(link))
        stays = bool((await link.request("stays", {})).get("stays", True))
    except BaseException:
        link.detach()
        raise
    if stays and attach:
        return AttachedGuest(entry, plan, link, jobs)
    await link.close()  # a guest without jobs ends when its last client closes
    await (release(plan.backend) if link.guest_remains else plan.backend.close())
    return Recovered(entry.profile, entry.key, entry.target, Fate.LEFT if link.guest_remains else Fate.REAPED, jobs)


async def _end_client(plan: Plan, guest: GuestRecord, client: bytes) -> None:
    """Close the dead client's session on its behalf: its shells and commands are ended, its jobs keep running."""
    dead = Link(plan.backend, env=plan.env, cwd=plan.cwd, lease_s=plan.lease_s, python=plan.python)
    try:
        await dead.attach(guest.identity, guest.interpreter, client)
    except PlaceError as error:  # its lease is over, so the guest has ended it already
        _log.debug("nothing to end: %s", error.what)
    else:
        await dead.close()
