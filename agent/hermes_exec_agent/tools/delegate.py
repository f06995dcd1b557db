"""Hand a task to a conversation of its own, over the same terminal and in a shell of its own."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from hermes_exec._async import finished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_agent.models.catalog import Models
    from hermes_exec_agent.runtime.events.log import EventLog
    from hermes_exec_agent.runtime.updates import Update
    from hermes_exec_agent.tools.tool import Context
    from hermes_exec_policies.gate.cases import Case

BUDGET = 50
"""Replies of the model that a task was handed to; the conversation that handed it on loses none for them."""
_NOT_HANDED_ON = frozenset({"delegate_task", "clarify"})
"""Whoever a task was handed to hands nothing on, and asks nobody."""


@dataclasses.dataclass(frozen=True, slots=True)
class HandOn:
    """Holds the other conversation."""

    models: Models
    log: EventLog
    names: Sequence[str]
    """Of the tools of the conversation that hands on."""
    cases: Sequence[Case]
    mends: bool

    async def __call__(self, request: str, context: Context) -> tuple[bool, str]:
        """Whether it came to an answer, and its last word. Cancelled, it ends, and so does what it ran."""
        from hermes_exec_agent.runtime import Conversation, Options
        from hermes_exec_agent.runtime.updates import CallEnded, Delegated, Retried, Warned
        from hermes_exec_agent.tools.toolset import core_tools

        def listen(update: Update) -> None:
            if isinstance(update, CallEnded | Warned | Retried):
                context.notify(Delegated(update))

        own = dataclasses.replace(context, conversation="", request="", _workspace=None)
        names = [name for name in self.names if name not in _NOT_HANDED_ON]
        tools = core_tools(models=self.models, log=self.log, names=names, cases=self.cases, mends=self.mends)
        options = Options(budget=BUDGET, unattended=True, parent=context.conversation)
        ended: list[str] = []
        try:
            other = Conversation(models=self.models, tools=tools(own), context=own, log=self.log, options=options)
            await other.begin()
            answer = await other.ask(request, listen)
            ended = await other.end_background()
        finally:
            await finished(own.close(), limit_s=None)
        said = [answer.text, *(f"[ended with the task: {each}]" for each in ended)]
        return answer.outcome == "answered", "\n".join(said)
