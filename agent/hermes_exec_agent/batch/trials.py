"""Trials: the combinations of tasks, targets, models and sample numbers, and their keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec_agent.batch.canonical_json import digest_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec_agent.batch.settings import RunSettings
    from hermes_exec_agent.batch.tasks import Task

DEFAULT_TARGET = "local"
_KEY = 24
"""Hexadecimal digits of a key."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial. Equal instructions under different ids have different keys."""

    key: str
    task: Task
    target: str
    model: str
    """Its name in the settings of the run; empty if the agent asks none."""
    sample: int
    """From 1 on."""


def list_trials(tasks: Sequence[Task], settings: RunSettings, digests: Mapping[str, str] | None = None) -> list[Trial]:
    """Return all trials of a run: sample by sample, so that a run that stops early has a first sample of each task.

    ``digests`` are those of the tasks by id, if they are known.
    """
    if digests is None:
        digests = {task.id: task.digest for task in tasks}
    agent = settings.agent.digest
    trials: list[Trial] = []
    for sample in range(1, settings.samples + 1):
        for model in settings.models:
            for task in tasks:
                for target in settings.on or (task.on or DEFAULT_TARGET,):
                    parts = [digests[task.id], target, model, agent, sample]
                    trials.append(Trial(digest_of(parts)[:_KEY], task, target, model, sample))
    return trials
