"""Open a target and hold a conversation over it; everything is closed at the end."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_exec._async import create_or_rollback, shield_to_completion
from hermes_exec.config.defaults import read_sections
from hermes_exec.errors import HermesError
from hermes_exec.terminal.opening import open_plan, plan_open
from hermes_exec_agent.agent_shell import mark_plan
from hermes_exec_agent.learning.review_schedule import read_rules
from hermes_exec_agent.memory.persons import Participant, check_participant, choose_participant
from hermes_exec_agent.runtime.conversation import Conversation
from hermes_exec_agent.runtime.delegation import Delegator
from hermes_exec_agent.runtime.options import Options
from hermes_exec_agent.runtime.soul import read_soul
from hermes_exec_agent.tools.command_rules import CommandRules
from hermes_exec_agent.tools.file_checkpoints import FileCheckpoints
from hermes_exec_agent.tools.tool import Approvals, Context
from hermes_exec_agent.tools.toolset import check_tool_names, create_tools

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from hermes_exec.config.plan import Plan
    from hermes_exec.config.settings import MemorySettings, Sections
    from hermes_exec.terminal.terminal import Terminal
    from hermes_exec_agent.mcp.servers import Servers
    from hermes_exec_agent.memory.longterm.service import LongTermMemory
    from hermes_exec_agent.memory.longterm.skill_meaning import SkillMeaning
    from hermes_exec_agent.models.catalog import Models
    from hermes_exec_agent.runtime.events.log import EventLog
    from hermes_exec_agent.runtime.hooks import ConversationHooks
    from hermes_exec_agent.tools.tool import Person, Tool
    from hermes_exec_policies.gate.cases import Case

_log = logging.getLogger("hermes_exec.agent")
_LEASE_S = 30.0
"""How long a command runs on after its agent was killed, in the background too, as no other program waits for it.
Jobs, which the tool ``terminal`` starts with ``keep``, have a lease of their own."""
_FAR_LEASE_S = 180.0
"""The same for targets whose connection may break and come back."""


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
    participant: Participant | None = None,
    more_tools: Sequence[Tool] = (),
) -> AsyncGenerator[Conversation]:
    """Open ``target`` and begin a conversation there, or resume the one whose id begins with ``resume``.

    The conversation has one terminal, which is never replaced: calls fail if its target is lost.
    ``models`` and ``log`` stay open. At the end, background processes are ended, except for jobs that were started
    with ``keep``. If this program is killed, its processes in the target end with their lease: after half a minute for
    ``local``, after three minutes for other targets, unless the profile has another value.

    Args:
        target: where to work; the configured default if None.
        models: the models to ask.
        person: answers questions and approvals.
        log: records all events.
        tools: the model's tools, or a function that creates them; those of the user's configuration if left out.
        resume: the beginning of a conversation's id.
        options: of the conversation.
        cwd: the folder to start in, in the target.
        approvals: which tools may run without a question.
        tell: shows the person a line from a tool.
        cases: a person's test cases for skills that are built here.
        repair_skills: whether a skill that fails in use may be improved and run once more.
        participant: the person that the conversation belongs to. If left out, a resumed conversation or a branch keeps
            its own, and a new one is of the configured person, or else of the owner.
        more_tools: tools in addition, which a delegated conversation does not have.

    Raises:
        PlaceError, ConfigError: the target could not be opened; nothing was recorded.
        UsageError: ``resume`` matches no conversation, or several, or one of another person.
    """
    chosen = log.find(resume) if resume else ""
    settings = read_sections()
    participant = _find_participant(log, chosen or (options.branch_of if options else ""), participant, settings)
    options = (options or Options()).with_settings(settings.agent)
    if settings.agent.soul and not chosen:
        soul = await asyncio.to_thread(read_soul, os.environ, tell or _log.warning)
        options = replace(options, instructions="\n\n".join(filter(None, (soul, options.instructions))))
    _check_names((*settings.agent.approvals, *settings.agent.descriptions))
    remembers = settings.memory.memory_enabled and not participant.is_guest
    longterm = _open_longterm(log, settings.memory, tell) if remembers else nullcontext()
    async with longterm as opened, await _open_terminal(target, cwd, models) as terminal:
        context = Context(
            terminal, target or terminal.target, person, chosen, model=models.main.name, models=models, cases=cases,
            repair_skills=repair_skills, delegate=Delegator(models, log, options.guardrails), participant=participant,
            longterm=opened,
        )  # fmt: skip
        if opened is not None:
            context.skill_meaning = _create_skill_meaning(opened)
        await asyncio.to_thread(_open_memory, context, log, settings.memory)
        _apply_settings(context, approvals, settings, log)
        if tell is not None:
            context.tell = tell
        if settings.agent.project_files and not (chosen or options.branch_of):
            await _read_project(context)
        created = create_tools(context) if tools is None else tools(context) if callable(tools) else tools
        reviews = None if participant.is_guest else read_rules(settings)
        async with _open_servers(settings, context, wanted=tools is None) as servers:
            others = (*more_tools, *(servers.tools if servers is not None else ()))
            context.tools = (*context.tools, *others)
            conversation = Conversation(
                models=models, tools=(*created, *others), context=context, log=log, options=options, reviews=reviews
            )
            await conversation.begin()
            async with _run_hooks(context, is_resumed=bool(chosen)), _keep_notes(log, models, settings.memory, context):
                try:
                    yield conversation
                finally:
                    await conversation.end_background()
                    await context.close()
                    await _send_words(conversation.id, context, log)


def _check_names(names: Sequence[str]) -> None:
    """Check the names of tools in the configuration; those of servers are known once these answer."""
    if names:
        from hermes_exec_agent.mcp.definitions import PREFIX

        check_tool_names(name for name in names if not name.startswith(PREFIX))


def _open_servers(settings: Sections, context: Context, *, wanted: bool) -> AbstractAsyncContextManager[Servers | None]:
    """Return a context manager of the servers whose tools the conversation has; a guest has none.

    ``wanted`` is whether the conversation has the tools of the configuration.
    """
    if not settings.mcp or not wanted or context.participant.is_guest:
        return nullcontext()
    from hermes_exec_agent.mcp.servers import open_servers

    return open_servers(settings.mcp, context)


def _run_hooks(context: Context, *, is_resumed: bool) -> AbstractAsyncContextManager[None]:
    """Return a context manager that runs the hooks of the conversation's start and end, if there are hooks."""
    return nullcontext() if context.hooks is None else _hold_session(context.hooks, context, is_resumed=is_resumed)


@asynccontextmanager
async def _hold_session(hooks: ConversationHooks, context: Context, *, is_resumed: bool) -> AsyncGenerator[None]:
    """Run the hooks of the start and the end, and end all that hooks left."""
    try:
        await hooks.start_session(context, is_resumed=is_resumed)
        try:
            yield
        finally:
            await shield_to_completion(hooks.end_session(context), limit_s=None)
    finally:
        await shield_to_completion(hooks.close())


async def _read_project(context: Context) -> None:
    """Give the conversation the project's files for agents; an untrusted one counts as text from outside."""
    from hermes_exec_agent.runtime.project_files import read_or_tell, render

    files = await read_or_tell(context.terminal, context.tell)
    context.project = render(files)
    context.provenance.has_output = context.provenance.has_output or any(not each.trusted for each in files)


def _apply_settings(context: Context, approvals: Approvals | None, settings: Sections, log: EventLog) -> None:
    """Give the conversation the configured approvals and descriptions of tools, and the queue of proposals."""
    given = approvals or Approvals()
    own = {} if given.mode == "deny" else settings.agent.approvals
    rules = settings.agent.commands
    commands = CommandRules.parse(() if given.mode == "deny" else rules.allow, rules.deny)
    context.approvals = Approvals(given.mode, {**given.tools, **own}, commands)
    context.descriptions = settings.agent.descriptions
    if settings.agent.hooks:
        from hermes_exec_agent.runtime.hooks import ConversationHooks

        context.hooks = ConversationHooks(settings.agent.hooks)
    context.checkpoints = FileCheckpoints(context.terminal) if settings.agent.keep_files else None
    if settings.learning.proposals and not context.participant.is_guest:
        context.proposals = log
    context.proposes_jobs = settings.agent.scheduled_jobs and not context.participant.is_guest


def _keep_notes(
    log: EventLog, models: Models, settings: MemorySettings, context: Context
) -> AbstractAsyncContextManager[None]:
    """Return a context manager that notes conversations if the configuration enables it."""
    if context.past is None or settings.session_notes == "off":
        return nullcontext()
    from hermes_exec_agent.memory.note_writer import keep_notes

    return keep_notes(log, models, settings, context.conversation)


def _find_participant(log: EventLog, earlier: str, participant: Participant | None, settings: Sections) -> Participant:
    """Return the person of the conversation; ``earlier`` is the conversation that it continues or branches off."""
    if earlier:
        return check_participant(log, earlier, participant)
    return participant or choose_participant(settings) or Participant()


def _open_memory(context: Context, log: EventLog, settings: MemorySettings) -> None:
    """Give the conversation the memory that the configuration enables; a guest gets none."""
    if context.participant.is_guest or not (settings.memory_enabled or settings.user_profile_enabled):
        return
    context.past = log if settings.memory_enabled else None
    from hermes_exec_agent.memory.journal import Journal

    context.journal = Journal.of_user(log, settings, person=context.participant.name)
    if settings.user_profile_enabled:
        from hermes_exec_agent.memory.user_model import create_user_model

        context.user_model = create_user_model(log, settings, context.participant.name)


async def _send_words(conversation: str, context: Context, log: EventLog) -> None:
    """Send the person's words to an external user model, if there is one; a failure is logged, and bounded in time."""
    if context.user_model is None or not context.user_model.is_external:
        return
    try:
        await context.user_model.record(await asyncio.to_thread(log.events, conversation))
    except HermesError as error:
        _log.warning("the person's words were not sent: %s", error)


@asynccontextmanager
async def _open_longterm(
    log: EventLog, settings: MemorySettings, tell: Callable[[str], None] | None
) -> AsyncGenerator[LongTermMemory | None]:
    """Use the long-term memory, or None if the configuration does not enable it, or cannot be followed."""
    if not settings.embedder or settings.long_term == "off":
        yield None
        return
    from hermes_exec_agent.memory.longterm.shared import acquire_memory, release_memory

    async def release(memory: LongTermMemory | None) -> None:
        if memory is not None:
            await asyncio.to_thread(release_memory, memory)

    longterm = await create_or_rollback(asyncio.to_thread(acquire_memory, log, settings, tell or _log.warning), release)
    try:
        yield longterm
    finally:
        await shield_to_completion(release(longterm))


def _create_skill_meaning(memory: LongTermMemory) -> SkillMeaning:
    from hermes_exec_agent.memory.longterm.skill_meaning import SkillMeaning

    return SkillMeaning(memory)


async def _open_terminal(target: str | None, cwd: str | None, models: Models) -> Terminal:
    plan = plan_open(target, cwd=cwd)
    mark_plan(plan, models.main.name)
    limit_lease(plan)
    if plan.backend.traits.shares_host:  # such a target imports no vendor's SDK, whose packages could be the same
        models.start_preparing()
    return await open_plan(plan, plan.create_audit(wanted=None))


def limit_lease(plan: Plan) -> None:
    """Let processes in a target end soon after a kill of this program, unless its profile has a lease of its own."""
    if not plan.lease_given:
        plan.lease_s = _LEASE_S if plan.backend.traits.shares_host else _FAR_LEASE_S
