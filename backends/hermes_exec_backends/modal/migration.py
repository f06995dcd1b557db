"""Migration to a new sandbox with the same files before the vendor's time limit ends the old one.

Processes end with the old sandbox, and pending requests have an unknown outcome. The terminal continues
(``hermes_exec.transport.migration``). The log announces a migration before it happens.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from hermes_exec_backends.modal import create, options

if TYPE_CHECKING:
    from hermes_exec_backends.modal.account import Account
    from hermes_exec_backends.modal.sandbox import Sandbox
    from hermes_exec_backends.profiles.modal import ModalProfile

ANNOUNCED_S = 900.0
"""Seconds between the announcement and the migration."""
BEFORE_S = 300.0
"""Seconds before its end at which a sandbox is migrated; the snapshot needs that time."""
_log = logging.getLogger("hermes_exec.place")


async def announce(target: str, age_s: float) -> None:
    """Announce the migration in time; return when a sandbox that is ``age_s`` old must migrate."""
    await asyncio.sleep(max(options.LONGEST_S - BEFORE_S - ANNOUNCED_S - age_s, 0.0))
    _log.warning(
        "%s reaches the vendor's longest life: in %g s its files and sessions go on in a new sandbox, what runs ends",
        target,
        ANNOUNCED_S,
    )
    await asyncio.sleep(ANNOUNCED_S)


async def move(account: Account, profile: ModalProfile, sandbox: Sandbox, lease_s: float, left_s: float) -> Sandbox:
    """Migrate to a new sandbox, which lives for ``left_s`` at most, and return it; the old one has ended.

    Raises:
        PlaceUnavailable: there is none; where the files could not be copied, the old one continues until its end.
    """
    image = await sandbox.snapshot()
    await sandbox.terminate()
    await sandbox.detach()
    moved = await create.create(account, profile, lease_s, image, left_s)
    _log.warning("modal:@%s was moved to modal:@%s", sandbox.id, moved.id)
    return moved
