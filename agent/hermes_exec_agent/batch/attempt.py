"""One attempt at a trial, from its target to its reward."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hermes_exec.errors import HermesError
from hermes_exec_agent.batch.agents import AgentEnd, run_agent
from hermes_exec_agent.batch.formats.function_grading import FunctionGrading
from hermes_exec_agent.batch.formats.grading import CheckFault, CommandGrading
from hermes_exec_agent.batch.formats.harbor_trial import HarborTrial, create_profile
from hermes_exec_agent.batch.formats.swebench_trial import SweBenchTrial
from hermes_exec_agent.batch.ledger import CapReached, TrialCapReached
from hermes_exec_agent.batch.places import open_place
from hermes_exec_agent.errors import ModelError
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from hermes_exec_agent.batch.formats.grading import Grade, Grading
    from hermes_exec_agent.batch.places import AttemptPlace, PlaceHealth
    from hermes_exec_agent.batch.reward_function import Function
    from hermes_exec_agent.batch.settings import RunSettings
    from hermes_exec_agent.batch.shard_log import ShardLog
    from hermes_exec_agent.batch.trials import Trial
    from hermes_exec_agent.models.catalog import Models
    from hermes_exec_agent.runtime.events.log import EventLog

State = Literal["graded", "ungraded", "failed", "lost", "interrupted", "capped"]
"""How an attempt ended: with a reward; without one, because its check could not run; because its target or its model
failed; with its shard; because the run was stopped; because a cap of the run stopped it."""
Failure = Literal["infrastructure", "model", "agent", "check"]
"""What failed. Only the first two are tried again."""
RETRIED = frozenset({"infrastructure", "model"})
_LINE = 300
_OPEN_S = 1200.0
_log = logging.getLogger("hermes_exec.batch")


@dataclass(slots=True)
class Attempt:
    """An attempt, and its result so far."""

    trial: Trial
    number: int
    state: State = "failed"
    failure: Failure | None = None
    reason: str = ""
    reward: float | None = None
    check: dict[str, Any] | None = None
    agent: AgentEnd = field(default_factory=AgentEnd)
    began: float = field(default_factory=time.time)

    @property
    def is_graded(self) -> bool:
        """Whether its check has run, or could not."""
        return self.state in ("graded", "ungraded")

    def fail(self, failure: Failure | None, error: BaseException | str, state: State = "failed") -> None:
        """Record a failure."""
        text = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
        self.state, self.failure, self.reason, self.reward = state, failure, flatten(text, _LINE), None

    def to_record(self) -> dict[str, Any]:
        """Return the result as its file has it."""
        trial, end, usage = self.trial, self.agent, self.agent.usage
        record: dict[str, Any] = {
            "key": trial.key,
            "attempt": self.number,
            "task": trial.task.id,
            "target": trial.target,
            "model": trial.model,
            "sample": trial.sample,
            "state": self.state,
            "failure": self.failure,
            "reason": self.reason,
            "reward": self.reward,
            "check": self.check,
            "outcome": end.outcome,
            "steps": end.steps,
            "calls": end.calls,
            "conversation": end.conversation,
            "usage": None,
            "began": round(self.began, 3),
            "seconds": round(time.time() - self.began, 3),
        }
        if usage is not None:
            names = ("prompt", "cached", "completion", "reasoning", "cost", "estimated")
            record["usage"] = {name: getattr(usage, name) for name in names}
        return record


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """What the attempts of a shard share."""

    settings: RunSettings
    files: Path
    """The folder of the tasks' copied files."""
    log: ShardLog
    events: EventLog
    starting: asyncio.Semaphore
    health: PlaceHealth
    create_models: Callable[[Trial], Models | None]
    clean: Callable[[str], str]
    """Removes secrets from text."""
    check: Function | None = None
    """Checks all tasks in place of their own checks."""


async def run_attempt(attempt: Attempt, context: AttemptContext) -> None:
    """Run an attempt; its fields have the result. Its target is closed when this returns.

    Raises:
        asyncio.CancelledError: the attempt was stopped; it has ended.
        HermesError, OSError: its end is not proven, or cannot be recorded; its lease ends it.
    """
    try:
        place_context = _plan_place(attempt.trial, attempt.number, context)
        limit_s = _OPEN_S + (attempt.trial.task.harbor.build_timeout_s if attempt.trial.task.harbor else 0.0)
        async with context.health.admit(attempt.trial.target), context.starting, asyncio.timeout(limit_s):
            place = await place_context.__aenter__()
    except (HermesError, OSError) as error:
        attempt.fail("infrastructure", error)
        return
    try:
        await _work(attempt, place, context)
    except BaseException:
        await place_context.__aexit__(None, None, None)
        raise
    try:
        await place_context.__aexit__(None, None, None)
    except (HermesError, OSError) as error:
        if attempt.failure in RETRIED:
            raise
        _log.warning("%s: its target was not closed well: %s", attempt.trial.key, error)


def _plan_place(trial: Trial, number: int, context: AttemptContext) -> AbstractAsyncContextManager[AttemptPlace]:
    """Return the target of an attempt, which is not open yet.

    Raises:
        HermesError: the settings of the task do not name one.
    """
    lease_s, spec = context.settings.lease_s, trial.task.harbor
    if spec is None:
        return open_place(trial, number, lease_s)
    env = HarborTrial(trial, spec, context.files, context.settings.pass_env).fill(spec.env)
    return open_place(trial, number, lease_s, create_profile(trial, spec, context.files), env)


def _create_grading(attempt: Attempt, context: AttemptContext) -> Grading:
    """Return what prepares and grades an attempt: by the format of its task, and by the function of the run, if any."""
    grading = _create_format_grading(attempt.trial, attempt.number, context)
    if context.check is None:
        return grading
    return FunctionGrading(grading, context.check, attempt.trial, attempt.agent, context.events)


def _create_format_grading(trial: Trial, number: int, context: AttemptContext) -> Grading:
    files, task = context.files, trial.task
    if task.harbor is not None:
        return HarborTrial(trial, task.harbor, files, context.settings.pass_env)
    if task.swebench is not None:
        patch = files.parent / "patches" / f"{trial.key}.{number}.diff"
        return SweBenchTrial(trial, task.swebench, files, patch, context.clean)
    return CommandGrading(trial, files)


async def _work(attempt: Attempt, place: AttemptPlace, context: AttemptContext) -> None:
    """Record the target, then let the agent work, and check its work."""
    key = {"key": attempt.trial.key, "attempt": attempt.number}
    context.log.write("place", **key, record=place.to_record())
    await context.log.sync()  # from here on commands run, which the next process must find
    context.log.write("running", **key)
    grading = _create_grading(attempt, context)
    try:
        await place.prepare()
        await grading.prepare(place, with_solution=context.settings.agent.agent == "oracle")
        async with grading.open_for_agent(place) as opened:
            await _run_agent(attempt, opened, context, grading.solution_env)
        _accept(attempt, await grading.grade(place))
    except CheckFault as error:
        attempt.fail(None, f"the check could not run: {error}", "ungraded")
    except CapReached as error:
        attempt.fail(None, error, "capped")
    except ModelError as error:
        attempt.fail("model", error)
    except (HermesError, OSError) as error:
        attempt.fail("infrastructure", error)


async def _run_agent(
    attempt: Attempt, place: AttemptPlace, context: AttemptContext, solution_env: dict[str, str]
) -> None:
    """Let the agent work; ``attempt.agent`` has what it used, also if it fails."""
    models = context.create_models(attempt.trial)
    settings = context.settings.agent
    try:
        await run_agent(
            attempt.trial, attempt.number, place, settings, models, context.events, attempt.agent, solution_env
        )
    except TrialCapReached as error:
        attempt.agent.outcome, attempt.agent.detail = "cap", str(error)


def _accept(attempt: Attempt, grade: Grade) -> None:
    """Record a reward."""
    end = attempt.agent
    attempt.state, attempt.reward, attempt.check = "graded", grade.reward, grade.record
    if grade.reward <= 0:
        attempt.failure = "check" if end.has_ended_by_itself else "agent"
        detail = f": {end.detail}" if end.detail else ""
        why = "" if end.has_ended_by_itself else f"the agent did not end by itself ({end.outcome}{detail}); "
        attempt.reason = flatten(f"{why}{grade.why}", _LINE)
