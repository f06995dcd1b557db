"""One attempt at a trial, from its target to its reward."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hermes_exec.errors import HermesError
from hermes_exec_agent.batch.agents import AgentEnd, run_agent
from hermes_exec_agent.batch.formats.function_grading import FunctionGrading
from hermes_exec_agent.batch.formats.grading import CheckFault, CommandGrading
from hermes_exec_agent.batch.formats.harbor_box import create_profile
from hermes_exec_agent.batch.formats.harbor_trial import HarborTrial
from hermes_exec_agent.batch.formats.swebench_trial import SweBenchTrial
from hermes_exec_agent.batch.formats.variables import fill
from hermes_exec_agent.batch.ledger import CapReached, TrialCapReached
from hermes_exec_agent.batch.places import open_place
from hermes_exec_agent.errors import ModelError
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from hermes_exec.config.profile import Profile
    from hermes_exec_agent.batch.formats.grading import Grade, Grading
    from hermes_exec_agent.batch.ledger import TrialAccount
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
    unclosed: list[Exception] = field(default_factory=list[Exception])
    """Why targets could not be closed, so that their ends are not proven."""

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
    create_models: Callable[[Trial, TrialAccount], Models | None]
    open_account: Callable[[], TrialAccount]
    """Returns the account of one more attempt."""
    hold_gpus: Callable[[Trial], AbstractAsyncContextManager[None]]
    """Counts the time of the GPUs of a trial's target; raises `CapReached`."""
    clean: Callable[[str], str]
    """Removes secrets from text."""
    check: Function | None = None
    """Checks all tasks in place of their own checks."""


async def run_attempt(attempt: Attempt, context: AttemptContext) -> None:
    """Run an attempt; its fields have the result. Its targets are closed when this returns.

    Raises:
        asyncio.CancelledError: the attempt was stopped; it has ended.
        HermesError, OSError: its end is not proven, or cannot be recorded; its lease ends it.
    """
    try:
        async with context.hold_gpus(attempt.trial):
            await _run_in_place(attempt, context)
    except CapReached as error:
        if not attempt.is_graded:  # else only its target was being closed
            attempt.fail(None, error, "capped")


async def _run_in_place(attempt: Attempt, context: AttemptContext) -> None:
    """Run an attempt in its target; see `run_attempt`."""
    try:
        place_context = _plan_place(attempt.trial, attempt.number, context)
        place = await _enter(place_context, attempt.trial, context)
    except (HermesError, OSError) as error:
        attempt.fail("infrastructure", error)
        return
    try:
        await _work(attempt, place, context)
    except BaseException:
        await place_context.__aexit__(None, None, None)
        raise
    await _leave(place_context, attempt)
    if attempt.unclosed and attempt.failure in RETRIED:
        raise attempt.unclosed[0]


async def _enter(
    manager: AbstractAsyncContextManager[AttemptPlace], trial: Trial, context: AttemptContext
) -> AttemptPlace:
    """Open a target when the caps and its health allow it."""
    limit_s = _OPEN_S + (trial.task.harbor.build_timeout_s if trial.task.harbor else 0.0)
    async with context.health.admit(trial.target), context.starting, asyncio.timeout(limit_s):
        return await manager.__aenter__()


async def _leave(manager: AbstractAsyncContextManager[AttemptPlace], attempt: Attempt) -> None:
    try:
        await manager.__aexit__(None, None, None)
    except (HermesError, OSError) as error:
        attempt.unclosed.append(error)
        _log.warning("%s: its target was not closed well: %s", attempt.trial.key, error)


def _plan_place(trial: Trial, number: int, context: AttemptContext) -> AbstractAsyncContextManager[AttemptPlace]:
    """Return the target of an attempt, which is not open yet.

    Raises:
        HermesError: the settings of the task do not name one.
    """
    lease_s, spec = context.settings.lease_s, trial.task.harbor
    if spec is None:
        return open_place(trial, number, lease_s)
    env = fill(spec.box.env, context.settings.pass_env, os.environ)
    return open_place(trial, number, lease_s, create_profile(trial, spec.box, context.files), env)


def _create_grading(attempt: Attempt, context: AttemptContext) -> Grading:
    """Return what prepares and grades an attempt: by the format of its task, and by the function of the run, if any."""
    grading = _create_format_grading(attempt, context)
    if context.check is None:
        return grading
    return FunctionGrading(grading, context.check, attempt.trial, attempt.agent, context.events)


def _create_format_grading(attempt: Attempt, context: AttemptContext) -> Grading:
    files, trial, name = context.files, attempt.trial, f"{attempt.trial.key}.{attempt.number}"
    if trial.task.harbor is not None:
        return HarborTrial(
            trial,
            trial.task.harbor,
            files,
            context.settings.pass_env,
            files.parent / "artifacts" / name,
            context.clean,
            lambda profile, env: _open_recorded(attempt, context, profile, env),
        )
    if trial.task.swebench is not None:
        patch = files.parent / "patches" / f"{name}.diff"
        return SweBenchTrial(trial, trial.task.swebench, files, patch, context.clean)
    return CommandGrading(trial, files)


@contextlib.asynccontextmanager
async def _open_recorded(
    attempt: Attempt, context: AttemptContext, target: str | Profile, env: Mapping[str, str]
) -> AsyncGenerator[AttemptPlace]:
    """Open another target of an attempt, and record it before a command runs in it."""
    manager = open_place(attempt.trial, attempt.number, context.settings.lease_s, target, env)
    place = await _enter(manager, attempt.trial, context)
    try:
        await _record_place(attempt, place, context)
        yield place
    except BaseException:
        await manager.__aexit__(None, None, None)
        raise
    await _leave(manager, attempt)


async def _record_place(attempt: Attempt, place: AttemptPlace, context: AttemptContext) -> None:
    context.log.write("place", key=attempt.trial.key, attempt=attempt.number, record=place.to_record())
    await context.log.sync()  # from here on commands run, which the next process must find


async def _work(attempt: Attempt, place: AttemptPlace, context: AttemptContext) -> None:
    """Record the target, then let the agent work, and check its work."""
    await _record_place(attempt, place, context)
    context.log.write("running", key=attempt.trial.key, attempt=attempt.number)
    grading = _create_grading(attempt, context)
    try:
        await place.prepare()
        await grading.prepare(place, with_solution=context.settings.agent.agent == "oracle")
        run = _AgentRun(attempt, context, grading.solution_env)
        if isinstance(grading, HarborTrial) and grading.spec.has_steps:
            _accept(attempt, await grading.run_steps(place, run))
            return
        async with grading.open_for_agent(place) as opened:
            await run(opened, attempt.trial, 0)
        _accept(attempt, await grading.grade(place))
    except CheckFault as error:
        attempt.fail(None, f"the check could not run: {error}", "ungraded")
    except CapReached as error:
        attempt.fail(None, error, "capped")
    except ModelError as error:
        attempt.fail("model", error)
    except (HermesError, OSError) as error:
        attempt.fail("infrastructure", error)


class _AgentRun:
    """Lets the agent of an attempt work, once for each step; ``attempt.agent`` has what it used, also if it fails."""

    def __init__(self, attempt: Attempt, context: AttemptContext, solution_env: dict[str, str]) -> None:
        self._attempt = attempt
        self._context = context
        self._solution_env = solution_env
        self._account = context.open_account()
        """One for all steps, as the caps of the trial are."""

    async def __call__(self, place: AttemptPlace, trial: Trial, number: int) -> AgentEnd:
        """Let the agent work on the request of ``trial``."""
        attempt, context, end = self._attempt, self._context, AgentEnd()
        name = f"{trial.key}.{attempt.number}" + (f".{number + 1}" if number else "")
        settings = context.settings.agent
        models = context.create_models(trial, self._account)
        try:
            await run_agent(trial, name, place, settings, models, context.events, end, self._solution_env)
        except TrialCapReached as error:
            end.outcome, end.detail = "cap", str(error)
        finally:
            attempt.agent.add(end)
        return end


def _accept(attempt: Attempt, grade: Grade) -> None:
    """Record a reward."""
    end = attempt.agent
    attempt.state, attempt.reward, attempt.check = "graded", grade.reward, grade.record
    if grade.reward <= 0:
        attempt.failure = "check" if end.has_ended_by_itself else "agent"
        detail = f": {end.detail}" if end.detail else ""
        why = "" if end.has_ended_by_itself else f"the agent did not end by itself ({end.outcome}{detail}); "
        attempt.reason = flatten(f"{why}{grade.why}", _LINE)
