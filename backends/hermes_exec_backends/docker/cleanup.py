"""Removal of containers whose lease has expired and that could not end on their own, as the engine reports them.

A running container is never touched: its first process keeps the lease. Removed are containers that were stopped for
reuse when their orchestrator vanished, and containers that were created and never started.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hermes_exec.terminal.copies import REPOSITORY
from hermes_exec_backends._shared.cleanup import remove_expired
from hermes_exec_backends._shared.labels import LEASE, read_lease
from hermes_exec_backends.docker import lease
from hermes_exec_backends.docker.channel import Container

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec.backend import Leftover
    from hermes_exec_backends.docker.engine import Engine

_ENDED = {"exited", "dead"}
_COPY_S = 86400
"""Seconds after which the image of a copy was left: it is removed at the end of its turn."""


async def reap(engine: Engine) -> list[Leftover]:
    """Remove all expired containers, with their anonymous volumes; return them.

    Raises:
        PlaceUnavailable: the engine cannot be reached.
    """
    filters = {"label": LEASE}
    found = await engine.call("docker", lambda client: client.containers(all=True, filters=filters))

    async def remove(each: Mapping[str, Any]) -> bool:
        container = Container(engine, str(each["Id"]))
        if not is_expired(await container.inspect(), time.time()):
            return False
        await container.remove()
        return True

    removed = await remove_expired(found, lambda each: f"docker:@{str(each['Names'][0]).lstrip('/')}", remove)
    return removed + await _remove_copies(engine)


async def _remove_copies(engine: Engine) -> list[Leftover]:
    """Remove the images of copies that processes left when they were killed."""
    images = await engine.call("docker", lambda client: client.images(REPOSITORY))
    old = [each for each in images if time.time() - float(each["Created"]) > _COPY_S]
    tags = [str(tag) for each in old for tag in each["RepoTags"] or () if REPOSITORY in str(tag)]

    async def remove(tag: str) -> bool:
        await engine.call(f"docker: image {tag}", lambda client: client.remove_image(tag))
        return True

    return await remove_expired(tags, lambda tag: f"docker:{tag}", remove)


def is_expired(container: Mapping[str, Any], now: float) -> bool:
    """Whether the lease of a container has expired; ``container`` is the engine's description of it."""
    seconds = read_lease(container["Config"].get("Labels") or {})
    if seconds is None:
        return False  # created by another program from an image of this project
    state = container["State"]
    if state["Status"] == "created":
        return now - _time(container["Created"]) > seconds
    if state["Status"] not in _ENDED or state["ExitCode"] == lease.KEPT:
        return False
    return state["ExitCode"] == 0 or now - _time(state["FinishedAt"]) > seconds


def _time(text: str) -> float:
    """Parse the engine's time, which is UTC with more digits than Python reads."""
    return datetime.fromisoformat(f"{text[:19]}+00:00").timestamp()
