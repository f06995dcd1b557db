"""When the curator runs by itself: once a week, while no conversation is active, as a process of its own.

It is off unless ``curator`` is set in ``[learning]`` of the person's own file. The first such run is only a report.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError
from hermes_exec_agent.detached_commands import run_command, start_command

if TYPE_CHECKING:
    from hermes_exec_agent.runtime.events import EventLog

PERIOD_S = 7 * 86400.0
IDLE_S = 2 * 3600.0
_LOOK_S = 900.0
"""How often a server looks whether a run is due."""
_STREAM = "curator"
_RUN = ("curator", "run", "--if-due")


def is_due(log: EventLog, now: float, *, ending: str = "") -> bool:
    """Return whether a week has passed since the last run, and no conversation was active for two hours.

    ``ending`` is a conversation that ends now, which does not count. If the clock went back by more than a week, a run
    is due.

    Raises:
        HermesError: the log cannot be read.
    """
    last = find_last_run(log)
    if last is not None and abs(now - last) < PERIOD_S:
        return False
    active = log.last_activity(apart_from=ending)
    return active is None or abs(now - active) >= IDLE_S


def find_last_run(log: EventLog) -> float | None:
    """Return when the last run ended, in seconds since 1970; None if there was none."""
    ends = [event.at for event in log.events(_STREAM) if event.data["what"] in {"reported", "finished"}]
    return ends[-1] if ends else None


def start_if_due(log: EventLog, *, ending: str = "") -> bool:
    """Start a run in a process of its own if one is enabled and due; return whether it was started.

    It is not waited for. The caller does not receive its errors.
    """
    if not _is_wanted(log, ending):
        return False
    start_command(*_RUN, *(("--after", ending) if ending else ()))
    return True


async def run_when_idle(log: EventLog) -> None:
    """Start a run whenever one is enabled and due, until cancelled."""
    while True:
        if await asyncio.to_thread(_is_wanted, log, ""):
            await run_command(*_RUN)
        await asyncio.sleep(_LOOK_S)


def _is_wanted(log: EventLog, ending: str) -> bool:
    from hermes_exec.config.defaults import read_sections
    from hermes_exec_agent.skills.registry.home import default_home

    try:
        home = default_home(os.environ)
        return read_sections().learning.curator and home.log.exists() and is_due(log, time.time(), ending=ending)
    except (HermesError, OSError):
        return False  # a chat and a server have reported it, or never read it
