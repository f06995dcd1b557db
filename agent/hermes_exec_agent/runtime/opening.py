"""Open a place and hold a conversation over it; everything is closed at the end."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from hermes_exec.terminal.opening import open_plan, plan_of
from hermes_exec_agent.runtime.conversation import Conversation
from hermes_exec_agent.runtime.delegation import Delegator
from hermes_exec_agent.tools.tool import Context
from hermes_exec_agent.tools.toolset import create_tools

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from hermes_exec.terminal.terminal import Terminal
    from hermes_exec_agent.models.catalog import Models
    from hermes_exec_agent.runtime.events.log import EventLog
    from hermes_exec_agent.runtime.options import Options
    from hermes_exec_agent.tools.tool import Approvals, Person, Tool
    from hermes_exec_policies.gate.cases import Case

_LEASE_S = 30.0
"""For which a command goes on where a killed agent left it, in the background too, as nobody waits for it any more.
Jobs, which the tool ``terminal`` starts with ``keep``, have a lease of their own."""
_FAR_LEASE_S = 180.0
"""The same where a connection can break while both of its ends live, and comes back."""


@asynccontextmanager
async def open_conversation(  # noqa: PLR0913  each is a choice of its own
    target: str | None,
    *,
    models: Models,
    person: Person,
    log: EventLog,
    tools: Sequence[Tool] | Callable[[Context], Sequence[Tool]] | None = None,
    resume: str = "",
    options: Options | None = None,
    cwd: str | None = None,
    approvals: Approvals | None = None,
    tell: Callable[[str], None] | None = None,
    cases: Sequence[Case] = (),
    repair_skills: bool = True,
) -> AsyncGenerator[Conversation]:
    """Open ``target`` and begin a conversation there, or go on with the one whose id begins with ``resume``.

    There is one terminal, and no other is opened in its stead: if the place is lost, calls fail and say so.
    ``models`` and ``log`` stay open. At the end, what runs in the background is ended, but for jobs that were started
    on purpose. Where this program is killed, what runs in the place ends soon: its lease is half
    a minute for ``local`` and three minutes for the others, if the place's profile does not say another.

    Args:
        target: the place; the configured default if None.
        models: who thinks.
        person: whom it works for.
        log: where everything is recorded.
        tools: the model's tools, or a function that creates them; those of the user's configuration if left out.
        resume: the beginning of a conversation's id.
        options: how it is held.
        cwd: the folder to start in, in the place.
        approvals: what tools may do without being asked.
        tell: shows the person a line of a tool's own.
        cases: a person's, which skills that are made here have to hold.
        repair_skills: whether a skill that fails in use may be improved and run once more.

    Raises:
        PlaceError, ConfigError: the place could not be opened; nothing was recorded.
        UsageError: there is no such conversation.
    """
    chosen = log.find(resume) if resume else ""
    async with await _opened(target, cwd) as terminal:
        context = Context(
            terminal, target or terminal.target, person, chosen, model=models.main.name, models=models, cases=cases,
            repair_skills=repair_skills, delegate=Delegator(models, log),
        )  # fmt: skip
        if approvals is not None:
            context.approvals = approvals
        if tell is not None:
            context.tell = tell
        created = create_tools(context) if tools is None else tools(context) if callable(tools) else tools
        conversation = Conversation(models=models, tools=created, context=context, log=log, options=options)
        await conversation.begin()
        try:
            yield conversation
        finally:
            await conversation.end_background()
            await context.close()


async def _opened(target: str | None, cwd: str | None) -> Terminal:
    plan = plan_of(target, cwd=cwd)
    if not plan.lease_given:
        plan.lease_s = _LEASE_S if plan.backend.traits.shares_host else _FAR_LEASE_S
    return await open_plan(plan, plan.audit(wanted=None))
