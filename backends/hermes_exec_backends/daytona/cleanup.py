"""Sandboxes of ours on an account: which there are, and which of them nobody needs any more.

A sandbox that is in use has a sign of life from its orchestrator in every third of its lease, which the service tells
as its last activity. One that was kept is its owner's, whatever its age.
"""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hermes_exec.backend import Leftover, Resource
from hermes_exec.errors import HermesError
from hermes_exec_backends._shared import tags
from hermes_exec_backends._shared.occupancy import HAS_GUEST
from hermes_exec_backends.daytona.create import delete
from hermes_exec_backends.daytona.errors import sdk_errors

if TYPE_CHECKING:
    from hermes_exec_backends.daytona.service import Service

_MARGIN_S = 60.0
_ENDED = {"destroyed", "destroying"}
_FAILED = {"error", "build_failed"}
_LOOK_S = 20
_ENDING_S = 10.0
"""For a guest to end once its last job is pruned and its last client has left."""
_PAUSE_S = 0.2
_HAS_GUEST = f"{HAS_GUEST}has_guest"
"""Whether a guest is there, which is so for as long as it has jobs."""


async def reap(service: Service) -> list[Leftover]:
    """Delete those that nobody needs.

    Raises:
        PlaceUnavailable: the service does not say what there is.
    """
    swept: list[Leftover] = []
    for sandbox in await ours(service):
        try:
            if not await _is_over(sandbox, time.time()):
                continue
            await delete(sandbox)
            left = ""
        except HermesError as error:
            left = error.what
        swept.append(Leftover(f"daytona:@{sandbox.name}", left))
    return swept


async def list_resources(service: Service) -> list[Resource]:
    """List the sandboxes of this project on the account."""
    return [
        Resource(
            target=f"daytona:@{sandbox.name}",
            since=tags.created(sandbox.labels),
            state=str(sandbox.state.value),
            size=size(sandbox),
            owner=str(sandbox.labels.get(tags.OWNER, "")),
        )
        for sandbox in await ours(service)
    ]


async def ours(service: Service) -> list[Any]:
    """All that we created on the account, and that are not at their end."""
    found = await service.listed({})
    return [each for each in found if tags.LEASE in each.labels and str(each.state.value) not in _ENDED]


def size(sandbox: Any) -> str:
    """What it has, in words."""
    parts = [f"{sandbox.cpu:g} CPU", f"{sandbox.memory:g} GiB", f"{sandbox.disk:g} GiB disk"]
    if sandbox.gpu:
        parts.append(f"{sandbox.gpu:g} x {getattr(sandbox.gpu_type, 'value', None) or 'GPU'}")
    return ", ".join(parts)


async def _is_over(sandbox: Any, now: float) -> bool:
    state = str(sandbox.state.value)
    if state in _FAILED:
        return True
    mark = sandbox.labels.get(tags.STATE)
    if mark == "kept":
        return False
    if mark == "jobs" and state == "started":
        return not await _has_guest(sandbox)
    return now - _seconds(sandbox.last_activity_at or sandbox.created_at) > _lease_s(sandbox) + _MARGIN_S


async def find_without_jobs(service: Service, name: str) -> Any:
    """Find the sandbox of that name if it was left to its jobs and has no guest any more; else give None.

    A guest that is just ending has some seconds for that.

    Raises:
        PlaceGone: there is no such sandbox.
        PlaceUnavailable: the service, or the sandbox, does not answer.
    """
    sandbox = await service.get(name)
    labels = sandbox.labels
    if tags.LEASE not in labels or labels.get(tags.STATE) != "jobs" or str(sandbox.state.value) != "started":
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
    lease_s = tags.lease_s(sandbox.labels) or 0.0
    stop_s = 60.0 * (sandbox.auto_stop_interval or 0)
    return max(lease_s, stop_s)


def _seconds(text: str | None) -> float:
    """Seconds since 1970 of the service's time; now, where it tells none, so that nothing is taken for old."""
    try:
        return datetime.fromisoformat(text or "").timestamp()
    except ValueError:
        return time.time()
