"""Start the worker of reviews by itself: a process of its own, which no request, exit or Ctrl-C waits for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError
from hermes_exec_agent.detached_commands import run_command, start_command

if TYPE_CHECKING:
    from hermes_exec.config.settings import Sections
    from hermes_exec_agent.learning.review_queue import ReviewRules
    from hermes_exec_agent.runtime.events import EventLog

_RUN = ("review", "run")
_LOOK_S = 60.0
"""How often a server looks whether a review waits."""


def read_rules(settings: Sections) -> ReviewRules | None:
    """Return when tasks are reviewed; None if the configuration does not enable it."""
    if not settings.learning.review:
        return None
    from hermes_exec_agent.learning.review_queue import ReviewRules

    memory = settings.memory
    remembers = memory.memory_enabled or memory.user_profile_enabled
    return ReviewRules(memory.nudge_interval if remembers else 0, settings.learning.creation_nudge)


def start_worker(log: EventLog) -> bool:
    """Start a worker if a review waits; return whether it was started. The caller does not receive its errors."""
    if not _has_pending(log):
        return False
    start_command(*_RUN)
    return True


def start_if_enabled(log: EventLog) -> bool:
    """Start a worker if reviews are enabled and one waits; see `start_worker`."""
    return _is_wanted(log) and start_worker(log)


async def run_regularly(log: EventLog) -> None:
    """Start a worker once a minute if reviews are enabled and one waits, until cancelled."""
    while True:
        if await asyncio.to_thread(_is_wanted, log):
            await run_command(*_RUN)
        await asyncio.sleep(_LOOK_S)


def _is_wanted(log: EventLog) -> bool:
    from hermes_exec.config.defaults import read_sections

    try:
        return read_sections().learning.review and _has_pending(log)
    except (HermesError, OSError):
        return False  # a server has reported it


def _has_pending(log: EventLog) -> bool:
    from hermes_exec_agent.learning.review_queue import has_pending

    try:
        return has_pending(log)
    except HermesError:
        return False
