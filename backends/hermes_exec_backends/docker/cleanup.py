"""Remove containers of ours whose lease is over and which could not end by themselves, by the engine's account.

A running container is never touched: its first process keeps the lease. What is left are containers that
were to be reused when their orchestrator vanished, and those that were created and never started.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hermes_exec.backend import Leftover
from hermes_exec.errors import HermesError
from hermes_exec_backends.docker import labels, lease
from hermes_exec_backends.docker.channel import Container

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec_backends.docker.engine import Engine

_ENDED = {"exited", "dead"}


async def reap(engine: Engine) -> list[Leftover]:
    """Remove them all, with their anonymous volumes.

    Raises:
        PlaceUnavailable: there is no engine to ask.
    """
    swept: list[Leftover] = []
    filters = {"label": labels.LEASE}
    found = await engine.call("docker", lambda client: client.containers(all=True, filters=filters))
    for each in found:
        container = Container(engine, str(each["Id"]))
        try:
            state = await container.inspect()
            if not is_over(state, time.time()):
                continue
            await container.remove()
            left = ""
        except HermesError as error:
            left = error.what
        swept.append(Leftover(f"docker:@{str(each['Names'][0]).lstrip('/')}", left))
    return swept


def is_over(container: Mapping[str, Any], now: float) -> bool:
    """Whether nobody needs this container any more; ``container`` is what the engine knows of it."""
    try:
        seconds = float(container["Config"]["Labels"][labels.LEASE])
    except (KeyError, TypeError, ValueError):
        return False  # not created by us, though its image was
    state = container["State"]
    if state["Status"] == "created":
        return now - _time(container["Created"]) > seconds
    if state["Status"] not in _ENDED or state["ExitCode"] == lease.KEPT:
        return False
    return state["ExitCode"] == 0 or now - _time(state["FinishedAt"]) > seconds


def _time(text: str) -> float:
    """Seconds since 1970 of an engine's time, which is UTC with more digits than Python reads."""
    return datetime.fromisoformat(f"{text[:19]}+00:00").timestamp()
