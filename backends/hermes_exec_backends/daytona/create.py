"""Creation of exactly one sandbox, even if requests fail: it has a name, and names are unique.

After no response, or an error of the service, the sandbox may exist all the same. So it is searched for by its name
before any retry, and one that cannot be used is deleted. A sandbox that still remains ends by itself: the service
deletes it after one lease without a report of activity.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_exec.errors import HermesError, PlaceGone, PlaceUnavailable
from hermes_exec.observe.spending import record_end, record_start
from hermes_exec_backends._shared import cost_guard, labels
from hermes_exec_backends._shared.backoff import Backoff, repeat
from hermes_exec_backends._shared.connectivity import Obstacle, Unreached, explain_delay
from hermes_exec_backends._shared.prices import DAYTONA
from hermes_exec_backends.daytona.errors import AmbiguousRequest, NotConnected, RateLimited, Refused, is_of, sdk_errors
from hermes_exec_backends.daytona.options import estimate_price, parameters
from hermes_exec_backends.daytona.service import REQUEST_S, STATE_S, describe, is_gone

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hermes_exec_backends.daytona.service import Service
    from hermes_exec_backends.profiles.daytona import DaytonaProfile

T = TypeVar("T")
_log = logging.getLogger("hermes_exec.backend.daytona")
_CREATE_S = 900.0
"""An image may have to be built."""
_BY_HAND = "hermes-exec backends --cost shows it; delete it at https://app.daytona.io/dashboard/sandboxes"
_COUNTED = ("archived", "archiving", "destroyed", "destroying", "stopped", "stopping", "error", "build_failed")


async def create(service: Service, profile: DaytonaProfile, name: str, lease_s: float) -> Any:
    """Create the sandbox ``name``, and wait until it runs.

    Raises:
        ConfigError: the profile asks for an unknown option, or the cost guard refuses it; nothing was requested.
        PlaceUnavailable: it was not created, or it did not start and was deleted.
    """
    asked = await asyncio.to_thread(parameters, profile, name, lease_s)
    if profile.max_sandboxes is not None:
        cost_guard.check_count(profile, await living(service, profile))

    def fail(obstacle: Obstacle) -> PlaceUnavailable:
        return PlaceUnavailable(f"daytona: {obstacle.what}; {_may_be_there(name)}", remedy=obstacle.remedy)

    try:
        sandbox = await explain_delay(_create(service, asked, name), service.find_obstacle, fail)
    except NotConnected as error:
        obstacle = await service.find_obstacle()
        raise Unreached("daytona", obstacle or Obstacle(error.what.removeprefix("daytona: "), error.remedy)) from error
    except BaseException as error:
        # Also after a cancellation: no untracked sandbox may remain.
        if not isinstance(error, PlaceUnavailable) or isinstance(error, _MayExist):
            await asyncio.shield(_remove(service, name, asked.labels))
        obstacle = await service.find_obstacle() if isinstance(error, _MayExist) else None
        if obstacle is not None:
            raise fail(obstacle) from error
        raise
    _record_start(sandbox, profile)
    return sandbox


def _record_start(sandbox: Any, profile: DaytonaProfile) -> None:
    stated = labels.read_hourly_cost(sandbox.labels)
    record_start(f"daytona:@{sandbox.name}", stated or estimate_price(profile), "" if stated else DAYTONA.source)


class _MayExist(PlaceUnavailable):
    """The error for a sandbox that did not start and may exist."""


def _may_be_there(name: str) -> str:
    return f"a sandbox {name} may be there, and then ends by itself"


async def _create(service: Service, asked: Any, name: str) -> Any:
    what = f"a sandbox was not created ({name})"
    backoff = Backoff()
    doubtful = False
    while True:
        try:
            with sdk_errors(what):
                return await service.client.create(asked, timeout=_CREATE_S)
        except HermesError as error:
            settled = isinstance(error, RateLimited | NotConnected | Refused) and is_of(error, "create_sandbox")
            doubtful = doubtful or not settled
            found = await _find_existing(service, name, asked.labels) if doubtful else None
            if found is not None:
                return await _wait_until_started(found, error)
            if not isinstance(error, RateLimited | AmbiguousRequest):
                raise
            await backoff.wait(error)
            _log.info("not created, once more: %s", error.what)


async def _find_existing(service: Service, name: str, asked: dict[str, str]) -> Any:
    """Return the sandbox of that name if it is the requested one."""
    try:
        found = await service.get(name)
    except PlaceGone:
        return None
    except PlaceUnavailable as error:
        raise _MayExist(f"{error.what}; {_may_be_there(name)}", remedy=error.remedy) from error
    ours = (labels.OWNER, labels.CREATED)
    return found if all(found.labels.get(key) == asked[key] for key in ours) else None


async def _wait_until_started(sandbox: Any, error: HermesError) -> Any:
    """Wait for a sandbox that was created although the service did not confirm it."""
    if str(sandbox.state.value) in _COUNTED:
        raise _MayExist(f"daytona: it did not start: {describe(sandbox)}", remedy=error.remedy) from error
    try:
        with sdk_errors("it did not start"):
            await sandbox.wait_for_sandbox_start(timeout=STATE_S)
    except PlaceUnavailable as late:
        raise _MayExist(late.what, remedy=late.remedy) from late
    return sandbox


async def _remove(service: Service, name: str, asked: dict[str, str]) -> None:
    """Delete a created sandbox that cannot be used, if it exists."""
    with contextlib.suppress(HermesError):
        found = await _find_existing(service, name, asked)
        if found is not None:
            await delete(found)


async def delete(sandbox: Any) -> None:
    """Delete a sandbox; a missing one is not an error.

    Raises:
        PlaceUnavailable: it may still exist; names its possible cost, and how to delete it.
    """
    try:
        with contextlib.suppress(PlaceGone):
            await persist(f"sandbox {sandbox.name!r} was not deleted", lambda: sandbox.delete(timeout=STATE_S))
    except PlaceUnavailable as error:
        raise PlaceUnavailable(f"{error.what}; it may cost until its lease ends it", remedy=_BY_HAND) from error
    if labels.LEASE in sandbox.labels:
        record_end(f"daytona:@{sandbox.name}")


async def persist(what: str, request: Callable[[], Awaitable[T]]) -> T:
    """Repeat an idempotent request while it fails with a temporary error.

    Raises:
        PlaceUnavailable: it failed permanently.
    """

    async def once() -> T:
        with sdk_errors(what):
            return await request()

    return await repeat(once, (RateLimited, AmbiguousRequest, NotConnected))


async def living(service: Service, profile: DaytonaProfile) -> int:
    """Count the sandboxes of a profile that are not stopped, archived or ending."""
    found = await service.list_sandboxes(labels.profile_label(profile))
    return sum(str(each.state.value) not in _COUNTED for each in found)


async def again(service: Service, profile: DaytonaProfile, name: str) -> Any:
    """Return the running sandbox of this project with that name; None if there is none, or a failed one was deleted.

    Raises:
        PlaceUnavailable: it does not start, or belongs to another owner.
    """
    try:
        sandbox = await service.get(name)
    except PlaceGone:
        return None
    if labels.LEASE not in sandbox.labels:
        raise PlaceUnavailable(
            f"daytona: the sandbox {name!r} was not created by us, and would be deleted in the end",
            remedy=f"sandbox = {name!r} to work in it, or another name",
        )
    try:
        return (await attach(service, profile, name))[0]
    except PlaceGone:
        await delete(sandbox)
        return None


async def attach(service: Service, profile: DaytonaProfile, name: str) -> tuple[Any, bool]:
    """Return the running sandbox of that id or name, and whether it was started for that.

    Raises:
        PlaceGone: there is none, or it has failed.
        PlaceUnavailable: it does not start.
    """
    sandbox = await service.get(name)
    state = str(sandbox.state.value)
    if state == "started":
        return sandbox, False
    since = labels.read_created(sandbox.labels)
    if since is not None:
        cost_guard.check_age(profile, since, time.time(), estimate_price(profile))
    if state in {"stopping", "archiving", "starting", "creating", "restoring"}:
        with sdk_errors(f"sandbox {name!r}"):
            await (
                sandbox.wait_for_sandbox_start(timeout=STATE_S)
                if state in {"starting", "creating", "restoring"}
                else sandbox.wait_for_sandbox_stop(timeout=STATE_S)
            )
            await sandbox.refresh_data(request_timeout=REQUEST_S)
        state = str(sandbox.state.value)
    if state in {"stopped", "archived"}:
        with sdk_errors(f"sandbox {name!r} was not started"):
            await sandbox.start(timeout=STATE_S)
        if labels.LEASE in sandbox.labels:
            _record_start(sandbox, profile)
        return sandbox, True
    if state != "started":
        raise PlaceGone(f"daytona: {name}: {describe(sandbox)}", remedy="open a new one")
    return sandbox, False


async def check_lives(service: Service, name: str) -> None:
    """Refuse to reopen a sandbox that has ended or was stopped: its processes are gone.

    Raises:
        PlaceGone: it is stopped or is ending, or there is none.
    """
    found = await service.get(name)
    if is_gone(str(found.state.value)):
        raise PlaceGone(f"daytona: {name}: {describe(found)}", remedy="open a new one")
