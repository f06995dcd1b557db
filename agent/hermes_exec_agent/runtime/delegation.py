"""Delegate a task to a conversation of its own, over the same terminal and in a shell of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec._async import shield_to_completion
from hermes_exec_agent.runtime.conversation import Conversation
from hermes_exec_agent.runtime.options import Options
from hermes_exec_agent.runtime.updates import CallEnded, Delegated, Retried, Warned
from hermes_exec_agent.tools.delegated_tasks import TaskAnswer
from hermes_exec_agent.tools.prepared import ToolTraits
from hermes_exec_agent.tools.toolset import offer_tools

if TYPE_CHECKING:
    from hermes_exec_agent.models.catalog import Models
    from hermes_exec_agent.runtime.events.log import EventLog
    from hermes_exec_agent.runtime.guardrails import Guardrails
    from hermes_exec_agent.runtime.updates import Update
    from hermes_exec_agent.tools.delegated_tasks import Task
    from hermes_exec_agent.tools.tool import Context

BUDGET = 50
"""Replies of the model in a delegated conversation; they do not count towards the budget of the delegating one."""


@dataclass(frozen=True, slots=True)
class Delegator:
    """Holds delegated conversations; see ``Context.delegate``."""

    models: Models
    log: EventLog
    guardrails: Guardrails | None = None

    async def __call__(self, task: Task, context: Context) -> TaskAnswer:
        """Return whether the other conversation answered, and its last message. Cancelled, it ends with all it runs."""

        def listen(update: Update) -> None:
            if isinstance(update, CallEnded | Warned | Retried):
                context.notify(Delegated(update, task.id, task.title))

        meter = task.meter or context.meter
        if meter is not None and (spent := await meter.find_end()):
            return TaskAnswer(False, f"it was not begun. {spent}")
        known = set(context.provenance.parts)
        own = context.fork()
        own.meter = meter
        if task.person is not None:
            own.person = task.person
        tools_of_parent = [each for each in context.tools if isinstance(each, ToolTraits)]
        renewed = [each.renew() for each in tools_of_parent if each.available_to_delegates]
        others = [each for each in context.tools if not isinstance(each, ToolTraits)]  # of other servers
        own.tools = tools = (*offer_tools(renewed, own), *others)
        options = Options(budget=BUDGET, unattended=True, parent=context.conversation, guardrails=self.guardrails)
        ended: list[str] = []
        models = context.models or self.models  # the conversation may have another main model by now
        other = Conversation(models=models, tools=tools, context=own, log=self.log, options=options)
        try:
            await other.begin()
            answer = await other.ask(task.request, listen)
            ended = await other.end_background()
        finally:
            context.spend(other.usage, conversation=other.id)
            context.provenance.merge(own.provenance)  # its last message may repeat what it read
            await shield_to_completion(own.close(), limit_s=None)
        lines = [answer.text, *(f"[ended with the task: {each}]" for each in ended)]
        origins = tuple(each for digest, each in own.provenance.parts.items() if digest not in known)
        return TaskAnswer(answer.outcome == "answered", "\n".join(lines), origins)
