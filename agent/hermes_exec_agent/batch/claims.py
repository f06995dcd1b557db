"""Which attempt at a trial comes next, for shards and for engines that claim attempts for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec_agent.batch.attempt import RETRIED
from hermes_exec_agent.batch.run_folder import UNBEGUN

if TYPE_CHECKING:
    from hermes_exec_agent.batch.run_folder import Epoch, RunFolder

_CLAIMS = 8
"""Claims of a trial for each attempt that it may have."""


def may_retry(state: str, failure: str | None) -> bool:
    """Whether a trial with this result is tried again in the same command."""
    return state == "lost" or (state == "failed" and failure in RETRIED)


def find_next(run: RunFolder, epoch: Epoch, key: str) -> tuple[int | None, bool]:
    """Return the number of the attempt to claim, if there is one, and whether the trial is over in this epoch."""
    base = epoch.todo[key]
    number, unbegun = base + 1, 0
    while run.is_claimed(key, number):
        result = run.read_result(key, number)
        if result is None:
            return None, False
        unbegun += bool(result.get(UNBEGUN))
        if not may_retry(result["state"], result["failure"]) or not may_try(epoch, number - base, unbegun):
            return None, True
        number += 1
    return number, False


def may_try(epoch: Epoch, claimed: int, unbegun: int) -> bool:
    """Whether a trial has another attempt after so many, of which ``unbegun`` ones never began and do not count."""
    most = epoch.settings.attempts
    return claimed - unbegun < most and claimed < most * _CLAIMS


def count_unbegun(run: RunFolder, key: str, numbers: range) -> int:
    """Return how many of the attempts of these numbers never began."""
    return sum(bool((run.read_result(key, number) or {}).get(UNBEGUN)) for number in numbers)
