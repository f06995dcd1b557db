"""Which terminals are ill: those are replaced, and what ran on one is told unknown, never run again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_exec.errors import OutcomeUnknown
from hermes_exec.orchestrator.member import Health

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hermes_exec.orchestrator.lease import Lease
    from hermes_exec.orchestrator.member import Member
    from hermes_exec.orchestrator.place import Place
    from hermes_exec.orchestrator.stock import Stock


def _unknown() -> OutcomeUnknown:
    return OutcomeUnknown("the terminal was found ill while this ran: it gave no answer")


async def look(places: Iterable[Place], limit_s: float) -> None:
    """Ask every terminal, all at once; one that does not answer within ``limit_s`` is ill."""
    looks = [
        _at_ready(place, stock, member, limit_s)
        for place in places
        for stock in place.stocks.values()
        for member in stock.ready
    ]
    looks += [_at_held(place, lease, limit_s) for place in places for lease in place.held]
    await asyncio.gather(*looks)


async def _at_ready(place: Place, stock: Stock, member: Member, limit_s: float) -> None:
    health = await member.look(limit_s)
    if health is not Health.WELL and member in stock.ready:
        if health is Health.ILL:
            member.lose(_unknown())
        place.replace(stock, member)


async def _at_held(place: Place, lease: Lease, limit_s: float) -> None:
    if await lease.member.look(limit_s) is Health.ILL and lease in place.held:
        lease.member.lose(_unknown())
        place.cut(lease, "the terminal was found ill")
