"""A check that is a function of the person's: it gets the open target and the trajectory, whatever the task's format.

Its file is frozen with the run, so that all shards and later commands check by the same text.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.config.paths import read_regular, to_printable
from hermes_exec.errors import PlaceError, UsageError
from hermes_exec_agent.batch.file_digests import digest_content, find_frozen
from hermes_exec_agent.batch.formats.exits import contain_exits, is_cancelling
from hermes_exec_agent.batch.formats.grading import CheckFault, Grade
from hermes_exec_agent.batch.reward_function import load_function, read_reward, split_name, to_input
from hermes_exec_agent.batch.trajectories.reading import RecordedConversation
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from contextlib import AbstractAsyncContextManager

    from hermes_exec_agent.batch.agents import AgentEnd
    from hermes_exec_agent.batch.formats.grading import Grading
    from hermes_exec_agent.batch.places import AttemptPlace
    from hermes_exec_agent.batch.reward_function import Function
    from hermes_exec_agent.batch.trials import Trial
    from hermes_exec_agent.runtime.events.log import EventLog

_LINE = 300


def freeze_check(word: str) -> tuple[str, str, bytes]:
    """Return the name of a check in a run's settings, and the name and the content of its copied file.

    Raises:
        UsageError: ``word`` is not ``FILE.py:FUNCTION`` with an ``async`` function.
    """
    source, name = split_name(word)
    if not source.endswith(".py"):
        raise UsageError(f"--check {to_printable(word)}: its file is copied", remedy="FILE.py:FUNCTION")
    _check_form(load_function(word), word)
    content = read_regular(Path(source))
    digest = digest_content(content)
    return f"{name}@{digest}", f"{digest}.py", content


def find_check(name: str, scripts: Path) -> Path:
    """Return the copied file of a check of a run's settings.

    Raises:
        ConfigError: it was changed.
    """
    digest = name.rpartition("@")[2]
    return find_frozen(scripts / f"{digest}.py", digest)


def load_check(name: str, scripts: Path) -> Function:
    """Return the function of a run's settings from its folder.

    Raises:
        ConfigError: its file was changed.
        UsageError: it cannot be loaded here.
    """
    return load_function(f"{find_check(name, scripts)}:{name.rpartition('@')[0]}")


def _check_form(function: Function, word: str) -> None:
    if not inspect.iscoroutinefunction(function):
        raise UsageError(
            f"--check {to_printable(word)}: it is not an async function", remedy="async def check(terminal, trajectory)"
        )


@dataclass(slots=True)
class FunctionGrading:
    """Prepares a task as its format does, and grades it by a function."""

    inner: Grading
    """That of the task's format."""
    function: Function
    trial: Trial
    end: AgentEnd
    log: EventLog

    @property
    def solution_env(self) -> dict[str, str]:
        """Return the variables of the solution's command."""
        return self.inner.solution_env

    async def prepare(self, place: AttemptPlace, *, with_solution: bool) -> None:
        """Prepare as the task's format does; see `Grading.prepare`."""
        await self.inner.prepare(place, with_solution=with_solution)

    def open_for_agent(self, place: AttemptPlace) -> AbstractAsyncContextManager[AttemptPlace]:
        """Return the target as the task's format does; see `Grading.open_for_agent`."""
        return self.inner.open_for_agent(place)

    async def grade(self, place: AttemptPlace) -> Grade:
        """Call the function; see `Grading.grade`."""
        began = time.monotonic()
        try:
            with contain_exits():
                async with asyncio.timeout(self.trial.task.check_timeout_s):
                    found = await self._call(place)
            reward, parts = read_reward(found)
        except PlaceError:
            raise
        except TimeoutError as error:
            raise CheckFault(f"no reward within {self.trial.task.check_timeout_s:g} s") from error
        except asyncio.CancelledError as error:
            if is_cancelling():
                raise
            raise CheckFault("CancelledError: a task that it waited for was cancelled") from error
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # it is the person's code
            raise CheckFault(flatten(f"{type(error).__name__}: {error}", _LINE)) from error
        record = {"seconds": round(time.monotonic() - began, 3), **({"parts": parts} if parts else {})}
        return Grade(reward, record, f"the check returned {reward:g}")

    async def _call(self, place: AttemptPlace) -> object:
        end, conversation = self.end, None
        if end.conversation:
            events = await asyncio.to_thread(self.log.events, end.conversation)
            conversation = RecordedConversation(end.conversation, events, ())
        result: dict[str, Any] = {
            "key": self.trial.key, "task": self.trial.task.id, "target": self.trial.target, "model": self.trial.model,
            "sample": self.trial.sample, "end": end.outcome, "steps": end.steps, "calls": end.calls,
        }  # fmt: skip
        trajectory = to_input(self.trial, result, conversation) | {"folder": place.folder}
        return await cast("Awaitable[object]", self.function(place.terminal, trajectory))
