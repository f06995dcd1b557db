"""One attempt at a trial, from its target to its reward."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hermes_exec.errors import HermesError, PlaceError, UsageError
from hermes_exec_agent.batch.agents import AgentEnd, run_agent
from hermes_exec_agent.batch.formats.harbor_trial import HarborTrial, RewardFault, create_profile
from hermes_exec_agent.batch.ledger import CapReached, TrialCapReached
from hermes_exec_agent.batch.places import open_place
from hermes_exec_agent.errors import ModelError
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from hermes_exec_agent.batch.places import AttemptPlace, PlaceHealth
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
_NOT_RUN = frozenset({126, 127})
"""Exit codes of a shell that could not run the command."""
_OUTPUT = 64 << 10
_LINE = 300
_OPEN_S = 1200.0
_SETUP_S = 600.0
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


async def run_attempt(attempt: Attempt, context: AttemptContext) -> None:
    """Run an attempt; its fields have the result. Its target is closed when this returns.

    Raises:
        asyncio.CancelledError: the attempt was stopped; it has ended.
        HermesError, OSError: its end is not proven, or cannot be recorded; its lease ends it.
    """
    try:
        place_context = _plan_place(attempt, context)
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


def _plan_place(attempt: Attempt, context: AttemptContext) -> AbstractAsyncContextManager[AttemptPlace]:
    """Return the target of an attempt, which is not open yet.

    Raises:
        HermesError: the settings of the task do not name one.
    """
    trial, lease_s = attempt.trial, context.settings.lease_s
    if (harbor := _find_harbor(trial, context)) is None or trial.task.harbor is None:
        return open_place(trial, attempt.number, lease_s)
    target = create_profile(trial, trial.task.harbor, context.files)
    return open_place(trial, attempt.number, lease_s, target, harbor.fill(trial.task.harbor.env))


def _find_harbor(trial: Trial, context: AttemptContext) -> HarborTrial | None:
    spec = trial.task.harbor
    return None if spec is None else HarborTrial(trial, spec, context.files, context.settings.pass_env)


async def _work(attempt: Attempt, place: AttemptPlace, context: AttemptContext) -> None:
    """Record the target, then let the agent work, and check its work."""
    key = {"key": attempt.trial.key, "attempt": attempt.number}
    context.log.write("place", **key, record=place.to_record())
    await context.log.sync()  # from here on commands run, which the next process must find
    context.log.write("running", **key)
    try:
        if (harbor := _find_harbor(attempt.trial, context)) is not None:
            await _run_harbor(harbor, attempt, place, context)
            return
        await _prepare(attempt.trial, place, context.files)
        await _run_agent(attempt, place, context)
        await _grade(attempt, place)
    except CapReached as error:
        attempt.fail(None, error, "capped")
    except ModelError as error:
        attempt.fail("model", error)
    except (HermesError, OSError) as error:
        attempt.fail("infrastructure", error)


async def _run_harbor(harbor: HarborTrial, attempt: Attempt, place: AttemptPlace, context: AttemptContext) -> None:
    """Do the work of `_work` for a task in Harbor's format."""
    task, spec = attempt.trial.task, attempt.trial.task.harbor
    await harbor.prepare(place, with_solution=context.settings.agent.agent == "oracle")
    async with harbor.open_as(place, spec.agent_user if spec else None) as terminal:
        env = harbor.fill(spec.solution_env) if spec else {}
        await _run_agent(attempt, replace(place, terminal=terminal, folder=harbor.workdir), context, env)
    try:
        reward, attempt.check = await harbor.grade(place, task.check, task.check_timeout_s)
    except RewardFault as error:
        attempt.fail(None, f"the check could not run: {error}", "ungraded")
        return
    _accept(attempt, reward, attempt.check["last"])


async def _run_agent(
    attempt: Attempt, place: AttemptPlace, context: AttemptContext, solution_env: dict[str, str] | None = None
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


async def _prepare(trial: Trial, place: AttemptPlace, files: Path) -> None:
    await place.prepare()
    if trial.task.files is not None:
        folder = place.folder or (await place.terminal.run("pwd -P", timeout=_SETUP_S)).stdout_text.rstrip("\n")
        await place.terminal.upload(files / trial.task.id, folder)
    if trial.task.setup is not None:
        argv = ["/bin/sh", "-c", trial.task.setup]
        done = await place.terminal.run(argv, cwd=place.folder, timeout=_SETUP_S, merge_stderr=True, max_output=_OUTPUT)
        if not done.ok:
            raise UsageError(f"setup: {done.reason}: {done.stdout_text[-_LINE:]}")


async def _grade(attempt: Attempt, place: AttemptPlace) -> None:
    """Run the task's check. It proves nothing if it did not end by itself, or could not run."""
    task = attempt.trial.task
    try:
        done = await place.terminal.run(
            ["/bin/sh", "-c", task.check],
            cwd=place.folder, timeout=task.check_timeout_s, merge_stderr=True, max_output=_OUTPUT,
        )  # fmt: skip
    except UsageError as error:  # the agent removed the folder
        attempt.fail(None, f"the check could not run: {error}", "ungraded")
        return
    except PlaceError as error:
        attempt.fail("infrastructure", error)
        return
    last = next((line for line in reversed(done.stdout_text.split("\n")) if line.strip()), "")
    attempt.check = {"exit_code": done.exit_code, "seconds": round(done.duration_s, 3), "last": flatten(last, _LINE)}
    if done.exit_code is None or done.timed_out or done.cancelled or done.exit_code in _NOT_RUN:
        attempt.fail(None, f"the check could not run: {done.reason}: {last}", "ungraded")
        return
    _accept(attempt, 1.0 if done.exit_code == 0 else 0.0, f"{done.reason}: {last}")


def _accept(attempt: Attempt, reward: float, last: str) -> None:
    """Record a reward; ``last`` says why it is no better one."""
    end = attempt.agent
    attempt.state, attempt.reward = "graded", reward
    if reward <= 0:
        attempt.failure = "check" if end.has_ended_by_itself else "agent"
        detail = f": {end.detail}" if end.detail else ""
        why = "" if end.has_ended_by_itself else f"the agent did not end by itself ({end.outcome}{detail}); "
        attempt.reason = flatten(f"{why}{last}", _LINE)
