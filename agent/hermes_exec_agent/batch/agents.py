"""The agents of trials: our own loop, a command line in the target, one that does nothing, and the solution."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec._async import shield_to_completion
from hermes_exec.errors import UsageError
from hermes_exec_agent.batch.settings import COMMAND
from hermes_exec_agent.memory.persons import Participant
from hermes_exec_agent.models.protocol import sum_usage
from hermes_exec_agent.runtime.conversation import Conversation
from hermes_exec_agent.runtime.delegation import Delegator
from hermes_exec_agent.runtime.options import Options
from hermes_exec_agent.tools.absent_person import AbsentPerson
from hermes_exec_agent.tools.tool import Approvals, Context
from hermes_exec_agent.tools.toolset import create_tools

if TYPE_CHECKING:
    from hermes_exec import Terminal
    from hermes_exec_agent.batch.places import AttemptPlace
    from hermes_exec_agent.batch.settings import AgentSettings
    from hermes_exec_agent.batch.trials import Trial
    from hermes_exec_agent.models.catalog import Models
    from hermes_exec_agent.models.protocol import Usage
    from hermes_exec_agent.runtime.events.log import EventLog

_OUTPUT = 64 << 10
INSTRUCTION = "HERMES_EXEC_INSTRUCTION"
"""The variable that has the instruction for an agent that is a command line."""
MODEL = "HERMES_EXEC_MODEL"


@dataclass(slots=True)
class AgentEnd:
    """How an agent ended, and what it used."""

    outcome: str = "answered"
    """`answered`, or why it did not end by itself; see `runtime.updates.Outcome`."""
    detail: str = ""
    """Why, if the outcome does not say it."""
    steps: int = 0
    calls: int = 0
    usage: Usage | None = None
    conversation: str = ""

    def add(self, other: AgentEnd) -> None:
        """Count the end of one step more; the first outcome of a step that did not end by itself stays."""
        if self.has_ended_by_itself:
            self.outcome, self.detail = other.outcome, other.detail
        self.steps, self.calls = self.steps + other.steps, self.calls + other.calls
        self.conversation = self.conversation or other.conversation
        if other.usage is not None:
            self.usage = other.usage if self.usage is None else sum_usage([self.usage, other.usage])

    @property
    def has_spent_all(self) -> bool:
        """Whether a cap of the trial allows no further request."""
        return self.outcome == "cap"

    @property
    def has_ended_by_itself(self) -> bool:
        """Whether no limit ended it."""
        return self.outcome == "answered"


async def run_agent(
    trial: Trial,
    name: str,
    place: AttemptPlace,
    settings: AgentSettings,
    models: Models | None,
    log: EventLog,
    end: AgentEnd,
    solution_env: dict[str, str],
) -> None:
    """Let the agent of the settings work on a trial in its target; ``end`` has how it ended, also after an error.

    ``name`` becomes the id of its conversation.

    Raises:
        ModelError: no model replied.
        CapReached: the run's caps allow no further request.
        HermesError: the target failed.
    """
    limit_s = trial.task.time_limit_s or settings.time_limit_s
    if settings.agent == "nop":
        return
    if settings.agent == "oracle":
        await _run_command(place, trial.task.solution or "false", solution_env, limit_s, end)
    elif settings.agent.startswith(COMMAND):
        env = {INSTRUCTION: trial.task.instruction, MODEL: trial.model}
        await _run_command(place, settings.agent.removeprefix(COMMAND), env, limit_s, end)
    elif models is None:
        raise UsageError("our agent needs a model", remedy="--model NAME")
    else:
        await _hold_conversation(trial, name, place, settings, models, log, end)


async def _run_command(place: AttemptPlace, command: str, env: dict[str, str], limit_s: float, end: AgentEnd) -> None:
    argv = ["/bin/sh", "-c", command]
    done = await place.terminal.run(
        argv, env=env, cwd=place.folder, timeout=limit_s, merge_stderr=True, max_output=_OUTPUT
    )
    lines = done.stdout_text.split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    end.outcome = "answered" if done.ok else "stopped" if done.timed_out else "failed"
    end.detail = "" if done.ok else f"{done.reason}: {last[:200]}"


@dataclass(frozen=True, slots=True)
class Work:
    """A request to our agent, and where it works on it."""

    terminal: Terminal
    target: str
    folder: str
    """Empty for the working folder of the target."""
    name: str
    """Unique; the conversation names it."""
    instruction: str
    tools: tuple[str, ...]
    steps: int
    """Replies of the model."""
    time_limit_s: float
    max_tokens: int | None = None
    """Of each reply."""


async def _hold_conversation(
    trial: Trial,
    name: str,
    place: AttemptPlace,
    settings: AgentSettings,
    models: Models,
    log: EventLog,
    end: AgentEnd,
) -> None:
    work = Work(
        place.terminal,
        trial.target,
        place.folder or "",
        name,
        trial.task.instruction,
        settings.tools,
        trial.task.steps or settings.steps,
        trial.task.time_limit_s or settings.time_limit_s,
        settings.max_tokens,
    )
    await hold_conversation(work, models, log, end, parent=f"trial {trial.key}")


async def hold_conversation(work: Work, models: Models, log: EventLog, end: AgentEnd, *, parent: str) -> None:
    """Let our agent work without a person; ``end`` has how it ended, also after an error.

    Raises:
        ModelError: no model replied.
        HermesError: the target failed.
    """
    context = Context(
        work.terminal,
        work.target,
        AbsentPerson(),
        work.name,
        model=models.main.name,
        models=models,
        repair_skills=False,
        participant=Participant(is_guest=True),
        approvals=Approvals("allow"),
        delegate=Delegator(models, log),
        folder=work.folder,
    )
    options = Options(
        budget=work.steps,
        unattended=True,
        parent=parent,
        max_tokens=work.max_tokens,
        time_limit_s=work.time_limit_s,
    )
    tools = create_tools(context, work.tools)
    conversation = Conversation(models=models, tools=tools, context=context, log=log, options=options)
    end.conversation = conversation.id
    try:
        await conversation.begin()
        answer = await conversation.ask(work.instruction)
        end.outcome, end.steps, end.calls = answer.outcome, answer.steps, answer.calls
    finally:
        end.usage = conversation.usage
        await shield_to_completion(_leave(conversation, context), limit_s=None)


async def _leave(conversation: Conversation, context: Context) -> None:
    await asyncio.gather(conversation.end_background(), return_exceptions=True)
    await asyncio.gather(context.close(), return_exceptions=True)
