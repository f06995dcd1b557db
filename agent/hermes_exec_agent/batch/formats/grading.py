"""What a format of tasks does before and after an agent; and that of our own format: a folder and a command."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from hermes_exec.errors import UsageError
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from hermes_exec.result import Result
    from hermes_exec_agent.batch.places import AttemptPlace
    from hermes_exec_agent.batch.trials import Trial

STEP_S = 600.0
"""Seconds for each command that prepares a task."""
_NOT_RUN = frozenset({126, 127})
"""Exit codes of a shell that could not run the command."""
_OUTPUT = 64 << 10
_LINE = 300


class CheckFault(Exception):
    """A check could not run, or says nothing, so that its trial has no reward."""


@dataclass(frozen=True, slots=True)
class Grade:
    """The reward of a trial."""

    reward: float
    record: dict[str, Any]
    """What the result keeps of the check."""
    why: str
    """One line about its end, for a trial without a reward above 0."""


class Grading(Protocol):
    """Prepares a trial and grades it. Its errors are those of targets, unless it raises `CheckFault`."""

    @property
    def solution_env(self) -> dict[str, str]:
        """Return the variables of the solution's command."""
        ...

    async def prepare(self, place: AttemptPlace, *, with_solution: bool) -> None:
        """Bring the task's files into the open target; ``with_solution`` also those of its solution."""
        ...

    def open_for_agent(self, place: AttemptPlace) -> AbstractAsyncContextManager[AttemptPlace]:
        """Return the target as the agent sees it, with its user and folder."""
        ...

    async def grade(self, place: AttemptPlace) -> Grade:
        """Run the check after the agent has ended.

        Raises:
            CheckFault: it could not run.
        """
        ...


def find_last_line(done: Result) -> str:
    """Return the last line of a command's output that is not empty."""
    return next((line.strip() for line in reversed(done.stdout_text.split("\n")) if line.strip()), "")


def refuse_unfinished(done: Result) -> None:
    """Refuse a check that did not end by itself, or could not run.

    Raises:
        CheckFault: so it is.
    """
    if done.exit_code is None or done.timed_out or done.cancelled or done.exit_code in _NOT_RUN:
        raise CheckFault(f"{done.reason}: {flatten(find_last_line(done), _LINE)}")


@dataclass(slots=True)
class CommandGrading:
    """A task of our own format: exit code 0 of its check is the reward 1; several checks have weights."""

    trial: Trial
    files: Path
    """The folder of the run's copied files."""
    solution_env: dict[str, str] = field(default_factory=dict[str, str])

    async def prepare(self, place: AttemptPlace, *, with_solution: bool) -> None:  # noqa: ARG002  it is a command
        """Copy the files, and run the setup; see `Grading.prepare`."""
        task, terminal = self.trial.task, place.terminal
        if task.files is not None:
            folder = place.folder or (await terminal.run("pwd -P", timeout=STEP_S)).stdout_text.rstrip("\n")
            await terminal.upload(self.files / task.id, folder)
        if task.setup is not None:
            argv = ["/bin/sh", "-c", task.setup]
            done = await terminal.run(argv, cwd=place.folder, timeout=STEP_S, merge_stderr=True, max_output=_OUTPUT)
            if not done.ok:
                raise UsageError(f"setup: {done.reason}: {done.stdout_text[-_LINE:]}")

    def open_for_agent(self, place: AttemptPlace) -> AbstractAsyncContextManager[AttemptPlace]:
        """Return the target itself."""
        return contextlib.nullcontext(place)

    async def grade(self, place: AttemptPlace) -> Grade:
        """Run the check, or each of several; see `Grading.grade`."""
        task = self.trial.task
        if not task.checks:
            done, last = await _run_check(place, task.check or "false", task.check_timeout_s)
            return Grade(float(done.exit_code == 0), _describe(done, last), f"{done.reason}: {last}")
        parts: dict[str, float] = {}
        details: dict[str, dict[str, Any]] = {}
        failed: list[str] = []
        for name, check in task.checks.items():
            try:
                done, last = await _run_check(place, check.command, check.timeout_s)
            except CheckFault as error:
                raise CheckFault(f"{flatten(name, _LINE)}: {error}") from error
            parts[name] = float(done.exit_code == 0)
            details[name] = _describe(done, last) | {"weight": check.weight}
            failed += [] if parts[name] else [f"{name}: {last}"]
        weights = {name: check.weight for name, check in task.checks.items()}
        reward = math.fsum(weights[name] * part for name, part in parts.items()) / math.fsum(weights.values())
        return Grade(reward, {"parts": parts, "checks": details}, flatten("; ".join(failed), _LINE))


async def _run_check(place: AttemptPlace, command: str, timeout_s: float) -> tuple[Result, str]:
    """Run the command of a check; return its result, and the last line of its output.

    Raises:
        CheckFault: it could not run.
    """
    try:
        done = await place.terminal.run(
            ["/bin/sh", "-c", command], cwd=place.folder, timeout=timeout_s, merge_stderr=True, max_output=_OUTPUT
        )
    except UsageError as error:  # the agent removed the folder
        raise CheckFault(str(error)) from error
    refuse_unfinished(done)
    return done, flatten(find_last_line(done), _LINE)


def _describe(done: Result, last: str) -> dict[str, Any]:
    return {"exit_code": done.exit_code, "seconds": round(done.duration_s, 3), "last": last}
