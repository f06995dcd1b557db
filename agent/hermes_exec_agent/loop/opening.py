"""Open a place and hold a conversation over it; everything is closed at the end."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import hermes_exec
from hermes_exec_agent.loop.conversation import Conversation
from hermes_exec_agent.tools.tool import Context

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from hermes_exec_agent.events.log import EventLog
    from hermes_exec_agent.loop.options import Options
    from hermes_exec_agent.models.named import Models
    from hermes_exec_agent.tools.tool import Person, Tool


@asynccontextmanager
async def open_conversation(
    target: str | None,
    *,
    models: Models,
    person: Person,
    log: EventLog,
    tools: Sequence[Tool] | Callable[[Context], Sequence[Tool]],
    resume: str = "",
    options: Options | None = None,
) -> AsyncGenerator[Conversation]:
    """Open ``target`` and begin a conversation there, or go on with the one whose id begins with ``resume``.

    There is one terminal, and no other is opened in its stead: if the place is lost, calls fail and say so.
    ``models`` and ``log`` stay open.

    Raises:
        PlaceError, ConfigError: the place could not be opened; nothing was recorded.
        UsageError: there is no such conversation.
    """
    chosen = log.find(resume) if resume else ""
    async with await hermes_exec.open(target) as terminal:
        context = Context(terminal, target or terminal.target, person, chosen)
        conversation = Conversation(
            models=models,
            tools=tools(context) if callable(tools) else tools,
            context=context,
            log=log,
            options=options,
        )
        await conversation.begin()
        yield conversation
