"""Run what is due next to a server or the gateway: each tick is a process of its own, which no request waits for."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError
from hermes_exec_agent.detached_commands import run_command

if TYPE_CHECKING:
    from hermes_exec_agent.scheduler.storage import CronStore

_PERIOD_S = 60.0
_WORK = (
    "SELECT EXISTS (SELECT 1 FROM jobs WHERE state = 'active' AND (next <= :now OR cursor > :now + 86400))"
    " OR EXISTS (SELECT 1 FROM slots WHERE state IN ('claimed', 'running'))"
    " OR EXISTS (SELECT 1 FROM deliveries WHERE state IN ('pending', 'sending') AND due <= :now)"
)


def has_work(store: CronStore, now: float) -> bool:
    """Whether a tick would find something to do; False if the file cannot be read, which a tick reports."""
    try:
        with store.snapshot() as base:
            return base is not None and bool(base.execute(_WORK, {"now": now}).fetchone()[0])
    except HermesError:
        return False


async def run_regularly(store: CronStore) -> None:
    """Start a tick in each minute in which there is something to do, until cancelled; ticks that run continue."""
    ticks: set[asyncio.Task[None]] = set()
    while True:
        if await asyncio.to_thread(has_work, store, time.time()):
            tick = asyncio.create_task(run_command("cron", "tick"))
            ticks.add(tick)
            tick.add_done_callback(ticks.discard)
        await asyncio.sleep(_PERIOD_S - time.time() % _PERIOD_S)
