"""The list of running sandboxes, and the removal of those whose lease has expired."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_exec.backend import Resource
from hermes_exec.errors import PlaceGone
from hermes_exec_backends._shared import labels
from hermes_exec_backends._shared.cleanup import remove_expired
from hermes_exec_backends.modal import create, lease
from hermes_exec_backends.modal.account import Account
from hermes_exec_backends.modal.sandbox import Sandbox

if TYPE_CHECKING:
    from hermes_exec.backend import Leftover
    from hermes_exec_backends.profiles.modal import ModalProfile

_GRACE_S = 60
"""Seconds after its lease in which a sandbox ends on its own."""


async def reap(profile: ModalProfile | None = None) -> list[Leftover]:
    """Terminate all expired sandboxes in the profile's app; return them.

    Raises:
        PlaceUnavailable: Modal cannot be reached.
    """
    from hermes_exec_backends.profiles.modal import ModalProfile

    account = await Account.of(profile or ModalProfile())

    async def terminate(handle: Any) -> bool:
        sandbox = Sandbox(account, handle)
        try:
            if not await _is_expired(sandbox):
                return False
            await sandbox.terminate()
        except PlaceGone:
            return False
        finally:
            await sandbox.detach()
        return True

    try:
        found = [handle for handle, _ in await _ours(account)]
        return await remove_expired(found, _target, terminate)
    finally:
        await account.leave()


async def list_resources(profile: ModalProfile | None = None) -> list[Resource]:
    """List the running sandboxes of this project in the profile's app.

    Raises:
        PlaceUnavailable: Modal cannot be reached.
    """
    from hermes_exec_backends.profiles.modal import ModalProfile

    account = await Account.of(profile or ModalProfile())
    try:
        return [_describe(handle, found) for handle, found in await _ours(account)]
    finally:
        await account.leave()


def _describe(handle: Any, found: dict[str, str]) -> Resource:
    price, source = labels.read_price(found)
    return Resource(
        target=_target(handle),
        since=labels.read_created(found),
        state="started",
        size=found.get(create.SIZE, ""),
        owner=found.get(labels.OWNER, ""),
        hourly_cost=price,
        price_source=source,
    )


async def _ours(account: Account) -> list[tuple[Any, dict[str, str]]]:
    """Return the SDK's handles of the running sandboxes that this project created, with their tags."""
    found = [
        (handle, await account.call("modal: its tags", handle.get_tags.aio()))
        for handle in await create.list_running(account, {})
    ]
    return [(handle, tags) for handle, tags in found if labels.read_lease(tags) is not None]


def _target(handle: Any) -> str:
    return f"modal:@{handle.object_id}"


async def _is_expired(sandbox: Sandbox) -> bool:
    """Whether the lease has expired by the clock of the sandbox, and no job needs it."""
    left_s = (await sandbox.run(lease.look())).strip()
    return left_s.lstrip(b"-").isdigit() and int(left_s) < -_GRACE_S
