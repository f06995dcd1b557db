"""The work of programs that run for long: scheduled jobs, reviews of past tasks, and the curator."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_exec_agent.runtime.events import EventLog


@asynccontextmanager
async def run_background(log: "EventLog") -> AsyncGenerator[None]:
    """Start what is due in processes of their own, once a minute, until the block ends."""
    from hermes_exec_agent.learning import curator_schedule, review_schedule
    from hermes_exec_agent.scheduler import server_ticks
    from hermes_exec_agent.scheduler.storage import CronStore

    tasks = [
        asyncio.create_task(work)
        for work in (
            curator_schedule.run_when_idle(log),
            review_schedule.run_regularly(log),
            server_ticks.run_regularly(CronStore.of_user()),
        )
    ]
    try:
        yield
    finally:
        for each in tasks:
            each.cancel()
