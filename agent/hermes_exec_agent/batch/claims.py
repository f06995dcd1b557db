"""Which attempt at a trial comes next, for shards and for engines that claim attempts for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec_agent.batch.attempt import RETRIED

if TYPE_CHECKING:
    from hermes_exec_agent.batch.run_folder import Epoch, RunFolder


def may_retry(state: str, failure: str | None) -> bool:
    """Whether a trial with this result is tried again in the same command."""
    return state == "lost" or (state == "failed" and failure in RETRIED)


def find_next(run: RunFolder, epoch: Epoch, key: str) -> tuple[int | None, bool]:
    """Return the number of the attempt to claim, if there is one, and whether the trial is over in this epoch."""
    base = epoch.todo[key]
    number = base + 1
    while run.is_claimed(key, number):
        result = run.read_result(key, number)
        if result is None:
            return None, False
        if not may_retry(result["state"], result["failure"]) or number - base >= epoch.settings.attempts:
            return None, True
        number += 1
    return number, False
