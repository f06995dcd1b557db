"""What of ours is alive, and the end of what nobody needs and could not end by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec.backend import Leftover, Resource
from hermes_exec.errors import HermesError, PlaceGone
from hermes_exec_backends._shared import tags
from hermes_exec_backends.modal import create, lease
from hermes_exec_backends.modal.account import Account
from hermes_exec_backends.modal.sandbox import Sandbox

if TYPE_CHECKING:
    from hermes_exec_backends.profiles.modal import ModalProfile

_GRACE_S = 60
"""Seconds after its lease in which a sandbox ends by itself."""


async def reap(profile: ModalProfile | None = None) -> list[Leftover]:
    """End them all, in the profile's app; says which.

    Raises:
        PlaceUnavailable: there is nothing to ask.
    """
    from hermes_exec_backends.profiles.modal import ModalProfile

    account = await Account.of(profile or ModalProfile())
    swept: list[Leftover] = []
    try:
        for handle in await create.alive(account, {}):
            sandbox = Sandbox(account, handle)
            found = await account.call("modal: its tags", handle.get_tags.aio())
            if tags.lease_s(found) is None:
                continue  # somebody else's
            left = ""
            try:
                if not await _is_over(sandbox):
                    continue
                await sandbox.terminate()
            except PlaceGone:
                continue
            except HermesError as error:
                left = error.what
            finally:
                await sandbox.detach()
            swept.append(Leftover(f"modal:@{sandbox.id}", left))
    finally:
        await account.leave()
    return swept


async def list_resources(profile: ModalProfile | None = None) -> list[Resource]:
    """List the running sandboxes of this project in the profile's app.

    Raises:
        PlaceUnavailable: there is nothing to ask.
    """
    from hermes_exec_backends.profiles.modal import ModalProfile

    account = await Account.of(profile or ModalProfile())
    try:
        listed: list[Resource] = []
        for handle in await create.alive(account, {}):
            found = await account.call("modal: its tags", handle.get_tags.aio())
            if tags.lease_s(found) is not None:
                size, owner = found.get(create.SIZE, ""), found.get(tags.OWNER, "")
                listed.append(Resource(f"modal:@{handle.object_id}", tags.created(found), "started", size, owner))
        return listed
    finally:
        await account.leave()


async def _is_over(sandbox: Sandbox) -> bool:
    """Whether its lease is over by its own clock, and no job needs it."""
    said = (await sandbox.run(lease.look())).strip()
    return said.lstrip(b"-").isdigit() and int(said) < -_GRACE_S
