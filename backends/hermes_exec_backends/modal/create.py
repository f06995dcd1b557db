"""Lookup or creation of the one sandbox of a profile, even if requests are repeated.

Every sandbox of this project has a name, the profile's or a unique one: when the response to a creation is lost, the
SDK's own retry is refused because the name is taken, and the sandbox is found by its name.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from typing import TYPE_CHECKING, Any

from hermes_exec._async import shield_to_completion
from hermes_exec.errors import PlaceGone, PlaceUnavailable
from hermes_exec.observe.spending import record_start
from hermes_exec_backends._shared import cost_guard, labels
from hermes_exec_backends._shared.backoff import repeat
from hermes_exec_backends._shared.prices import MODAL, estimate_modal
from hermes_exec_backends.modal import lease, options
from hermes_exec_backends.modal.account import BUILD_S, sdk
from hermes_exec_backends.modal.errors import AmbiguousOutcome, Gone, NotFound, Taken, Trouble
from hermes_exec_backends.modal.sandbox import Sandbox

if TYPE_CHECKING:
    from hermes_exec_backends.modal.account import Account
    from hermes_exec_backends.profiles.modal import ModalProfile

SIZE = "hermes_exec.size"
"""The tag with the sandbox's resources, for display."""
_LONGEST_NAME = 60


async def attach(account: Account, sandbox_id: str, *, returning: bool) -> Sandbox:
    """Return the sandbox of that ID.

    Raises:
        PlaceUnavailable: there is none, or it has ended.
        PlaceGone: the same, if ``returning`` is true.
    """
    what = f"modal: the sandbox {sandbox_id}"
    missing = PlaceGone if returning else Gone
    try:
        found = Sandbox(account, await account.call(what, sdk().Sandbox.from_id.aio(sandbox_id, client=account.client)))
        death = await found.death()
    except Gone as error:
        raise missing(error.what, remedy=error.remedy) from error
    if death:
        raise missing(f"{what} has ended: {death}", remedy="open a new one")
    return found


async def find(account: Account, profile: ModalProfile, name: str) -> Sandbox | None:
    """Return the running sandbox of that name, if there is one."""
    work = sdk().Sandbox.from_name.aio(profile.app, name, environment_name=profile.environment, client=account.client)
    try:
        return Sandbox(account, await account.call(f"modal: the sandbox {name!r}", work))
    except NotFound:
        return None


async def create(
    account: Account, profile: ModalProfile, lease_s: float, image: Any = None, left_s: float | None = None
) -> Sandbox:
    """Create a sandbox from the profile's image or from ``image``; or return the one that has its name.

    One that continues another lives for ``left_s`` at most.

    Raises:
        ConfigError: an option is wrong, or the cost guard forbids it; nothing was created.
        PlaceUnavailable: it could not be created, and none remains.
    """
    cost_guard.check_profile(profile, kinds(profile))
    if profile.max_sandboxes is not None:
        cost_guard.check_count(profile, len(await list_running(account, labels.profile_label(profile))))
    name = profile.name or f"hermes-exec-{secrets.token_hex(8)}"
    chosen = image or await options.image(account, profile)
    arguments = options.sandbox(account, profile)
    price = estimate_modal(profile.cpu, profile.memory, profile.gpu)
    longest = cost_guard.longest_s(profile, price) if left_s is None else left_s
    if longest is not None:
        arguments["timeout"] = max(1, min(arguments["timeout"], int(longest)))
    own = labels.sandbox_labels(profile, lease_s)
    tags = {**own, **labels.estimate_label(price, MODAL.source), SIZE: size(profile)}
    arguments.update(name=name, image=chosen, tags=tags)
    first = lease.entrypoint(lease_s, profile.job_lease_s)

    async def once() -> Sandbox:
        work = sdk().Sandbox.create.aio(*first, **arguments)
        try:
            with options.generation(profile.generation):
                return Sandbox(account, await account.call("modal: a sandbox", work, BUILD_S))
        except Taken:
            found = await find(account, profile, name)
            if found is None:
                raise
            return found

    try:
        sandbox = await repeat(once, (Trouble,))  # its name prevents a second creation
    except (AmbiguousOutcome, asyncio.CancelledError):
        await shield_to_completion(_end_doubtful(account, profile, name))
        raise
    record_start(f"modal:@{sandbox.id}", *labels.read_price(tags))
    return sandbox


async def _end_doubtful(account: Account, profile: ModalProfile, name: str) -> None:
    """End a sandbox whose creation was not confirmed, if it exists. If Modal does not answer, its lease ends it."""
    try:
        found = None if profile.name else await find(account, profile, name)
        if found is not None:
            await found.terminate()
    except PlaceUnavailable:
        return


async def list_running(account: Account, wanted: dict[str, str]) -> list[Any]:
    """Return the SDK's handles of the account's running sandboxes with these tags.

    Raises:
        PlaceUnavailable: Modal does not answer.
    """

    async def collect() -> list[Any]:
        listed = sdk().Sandbox.list.aio(app_id=account.app.app_id, tags=wanted, client=account.client)
        return [each async for each in listed]

    return await account.call("modal: the list of sandboxes", collect())


def kinds(profile: ModalProfile) -> list[str]:
    """Return the kind of GPU that a profile asks for, without a count."""
    return [profile.gpu.partition(":")[0].rstrip("!+").upper()] if profile.gpu else []


def size(profile: ModalProfile) -> str:
    """Describe the resources of a profile's sandbox."""
    parts = [f"{profile.cpu:g} CPU"] if profile.cpu else []
    if profile.memory:
        parts.append(f"{profile.memory / 2**30:.1f} GiB")
    return ", ".join([*parts, *([profile.gpu] if profile.gpu else [])]) or "the least"


def image_name(profile: ModalProfile) -> str:
    """Return the name under which the files of a profile's sandbox are kept."""
    name = f"hermes-exec-{profile.app}-{profile.name}"
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 13]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
