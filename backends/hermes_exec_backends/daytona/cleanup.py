"""The list of sandboxes on an account, and the removal of those whose lease has expired.

The orchestrator of a sandbox in use reports activity in every third of the lease, which the service returns as the
last activity. A sandbox that was kept belongs to its owner, whatever its age.
"""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hermes_exec.backend import Resource
from hermes_exec_backends._shared import labels
from hermes_exec_backends._shared.cleanup import remove_expired
from hermes_exec_backends._shared.lease import HAS_GUEST
from hermes_exec_backends._shared.prices import DAYTONA
from hermes_exec_backends.daytona.create import delete
from hermes_exec_backends.daytona.errors import sdk_errors

if TYPE_CHECKING:
    from hermes_exec.backend import Leftover
    from hermes_exec_backends.daytona.service import Service

_MARGIN_S = 60.0
_ENDED = {"destroyed", "destroying"}
_FAILED = {"error", "build_failed"}
_LOOK_S = 20
_ENDING_S = 10.0
"""Seconds for a guest to end after its last job was pruned and its last client has disconnected."""
_PAUSE_S = 0.2
_HAS_GUEST = f"{HAS_GUEST}has_guest"
"""Exits with 0 if a guest runs, which it does while it has jobs."""


async def reap(service: Service) -> list[Leftover]:
    """Delete those whose lease has expired; return them.

    Raises:
        PlaceUnavailable: the service cannot be reached.
    """

    async def remove(sandbox: Any) -> bool:
        if not await _is_expired(sandbox, time.time()):
            return False
        await delete(sandbox)
        return True

    return await remove_expired(await ours(service), _target, remove)


async def list_resources(service: Service) -> list[Resource]:
    """List the sandboxes of this project on the account."""
    return [_describe(sandbox) for sandbox in await ours(service)]


def _describe(sandbox: Any) -> Resource:
    price, source = _read_price(sandbox)
    return Resource(
        target=_target(sandbox),
        since=labels.read_created(sandbox.labels),
        state=str(sandbox.state.value),
        size=size(sandbox),
        owner=str(sandbox.labels.get(labels.OWNER, "")),
        hourly_cost=price,
        price_source=source,
    )


def _read_price(sandbox: Any) -> tuple[float | None, str]:
    """Return the price in US dollars an hour of a sandbox that runs, or of the disk of one that is stopped."""
    state = str(sandbox.state.value)
    stated = labels.read_hourly_cost(sandbox.labels)
    if state == "started" and stated is not None:
        return stated, ""
    disk = float(sandbox.disk)
    if state == "stopped":
        return DAYTONA.estimate(cpus=0, memory=0, disk=disk), DAYTONA.source
    if state != "started":
        return None, ""
    gpus = [(str(getattr(sandbox.gpu_type, "value", "")), float(sandbox.gpu))] if sandbox.gpu else []
    price = DAYTONA.estimate(cpus=float(sandbox.cpu), memory=float(sandbox.memory), disk=disk, gpus=gpus)
    return price, DAYTONA.source if price is not None else ""


async def ours(service: Service) -> list[Any]:
    """Return the sandboxes that this project created on the account and that have not ended."""
    found = await service.list_sandboxes({})
    return [each for each in found if labels.LEASE in each.labels and str(each.state.value) not in _ENDED]


def size(sandbox: Any) -> str:
    """Describe the resources of a sandbox, for display."""
    parts = [f"{sandbox.cpu:g} CPU", f"{sandbox.memory:g} GiB", f"{sandbox.disk:g} GiB disk"]
    if sandbox.gpu:
        parts.append(f"{sandbox.gpu:g} x {getattr(sandbox.gpu_type, 'value', None) or 'GPU'}")
    return ", ".join(parts)


def _target(sandbox: Any) -> str:
    return f"daytona:@{sandbox.name}"


async def _is_expired(sandbox: Any, now: float) -> bool:
    state = str(sandbox.state.value)
    if state in _FAILED:
        return True
    mark = sandbox.labels.get(labels.STATE)
    if mark == "kept":
        return False
    if mark == "jobs" and state == "started":
        return not await _has_guest(sandbox)
    return now - _seconds(sandbox.last_activity_at or sandbox.created_at) > _lease_s(sandbox) + _MARGIN_S


async def find_without_jobs(service: Service, name: str) -> Any:
    """Return the sandbox of that name if it was left to its jobs and no longer has a guest, else None.

    A guest that is ending gets some seconds for that.

    Raises:
        PlaceGone: there is no such sandbox.
        PlaceUnavailable: the service, or the sandbox, does not answer.
    """
    sandbox = await service.get(name)
    found = sandbox.labels
    if labels.LEASE not in found or found.get(labels.STATE) != "jobs" or str(sandbox.state.value) != "started":
        return None
    give_up = time.monotonic() + _ENDING_S
    while await _has_guest(sandbox):
        if time.monotonic() > give_up:
            return None
        await asyncio.sleep(_PAUSE_S)
    return sandbox


async def _has_guest(sandbox: Any) -> bool:
    with sdk_errors(f"sandbox {sandbox.name!r}"):
        answer = await sandbox.process.exec(_HAS_GUEST, timeout=_LOOK_S)
    return bool(answer.exit_code != 1)


def _lease_s(sandbox: Any) -> float:
    lease_s = labels.read_lease(sandbox.labels) or 0.0
    stop_s = 60.0 * (sandbox.auto_stop_interval or 0)
    return max(lease_s, stop_s)


def _seconds(text: str | None) -> float:
    """Parse the service's time; the current time without one, so that no sandbox counts as old."""
    try:
        return datetime.fromisoformat(text or "").timestamp()
    except ValueError:
        return time.time()
