"""Run a chat that `start_chat` prepared: one question, a replay, or an interactive chat."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.errors import HermesError, UsageError
from hermes_exec.observe.redact import Redactor
from hermes_exec_agent.frontends.chat.approver import TerminalApprover
from hermes_exec_agent.frontends.chat.display import OUTCOME_MESSAGES, PlainDisplay, SilentDisplay
from hermes_exec_agent.frontends.chat.keyboard import Keyboard
from hermes_exec_agent.frontends.chat.listing import LAST, find_conversation
from hermes_exec_agent.frontends.chat.question import has_unread_input
from hermes_exec_agent.frontends.chat.session import ChatSession
from hermes_exec_agent.learning.curator_schedule import start_if_due
from hermes_exec_agent.learning.proposals_watch import check_configuration
from hermes_exec_agent.learning.review_schedule import start_if_enabled
from hermes_exec_agent.memory.persons import check_participant
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.tools.absent_person import AbsentPerson
from hermes_exec_agent.tools.tool import Approvals, to_safe_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.frontends.chat.arguments import ChatArguments
    from hermes_exec_agent.frontends.chat.display import TurnDisplay
    from hermes_exec_agent.frontends.chat.question import Question
    from hermes_exec_agent.frontends.chat.replay import Replay
    from hermes_exec_agent.memory.persons import Participant
    from hermes_exec_agent.models import Models
    from hermes_exec_agent.runtime import Answer, Conversation
    from hermes_exec_agent.tools.tool import Mode

UNANSWERED = 1
"""The exit code of a turn without an answer from the model: budget, guardrail or filter."""
INTERRUPTED = 130
_AUDITS_S = 2.0
"""How long the program waits at its end for an audit that runs."""


@dataclass(slots=True)
class ChatRun:
    """What a chat needs to run."""

    asked: ChatArguments
    models: Models
    replay: Replay | None
    participant: Participant | None
    proposes: bool
    """Whether the agent may propose changes of the configuration."""
    at_terminal: bool
    """Whether a user reads and types at a terminal that can move its cursor."""
    say: Callable[[HermesError], None]
    """Reports an error after which the chat continues."""
    cwd: str | None
    """The folder of the target to start in."""
    secrets: Sequence[Secret]
    """Those of the target, which are removed from the record."""


async def run_chat(run: ChatRun, query: Question | None) -> int:
    """Ask the question, or chat; return the exit code.

    Raises:
        HermesError: the arguments are wrong, or the target or the model failed to answer the question.
    """
    asked, models, replay = run.asked, run.models, run.replay
    display = _display(asked, fancy=run.at_terminal and query is None)
    with EventLog.of_user(redactor=Redactor((*run.secrets, *models.secrets))) as log:
        talk = ChatSession(
            asked.on,
            models=models,
            log=log,
            display=display,
            person=TerminalApprover(Keyboard(), display.hold) if sys.stdin.isatty() else AbsentPerson(),
            approvals=_approvals(asked, replay),
            cases=asked.case,
            cwd=run.cwd,
            budget=asked.budget,
            most_cost=asked.most_cost,
            mends=asked.improve,
            unattended=not sys.stdin.isatty(),
            participant=run.participant,
            check=asked.check,
        )
        if line := check_configuration(log, os.environ, enabled=run.proposes):
            print(f"hermes-exec: {to_safe_line(line)}", file=sys.stderr)
        try:
            return await _talk(talk, asked, query, replay, run.say)
        finally:
            current = talk.current
            await talk.close()
            await models.close()
            if current is not None and replay is None:
                start_if_due(log, ending=current.id)
                start_if_enabled(log)
            _wait_for_audits()


def _wait_for_audits() -> None:
    from hermes_exec_agent.learning.audit import wait_for_audits

    wait_for_audits(_AUDITS_S)


async def _talk(
    talk: ChatSession,
    asked: ChatArguments,
    query: Question | None,
    replay: Replay | None,
    say: Callable[[HermesError], None],
) -> int:
    if asked.continue_newest and asked.resume is not None:
        raise UsageError("--continue excludes --resume", remedy="leave one of them out")
    word = LAST if asked.continue_newest else asked.resume
    resume = find_conversation(talk.log, word, talk.participant) if word is not None else ""
    if resume:
        check_participant(talk.log, resume, talk.participant)
    if asked.fork and not resume:
        raise UsageError("--fork needs a conversation to start from", remedy="--continue, or --resume ID")
    await _print_fall_backs(talk, asked)
    if query is not None:
        _print_unprompted(talk, asked, replay)
        if resume and not asked.fork:
            talk.log.refuse_held_turn(resume)  # before the target is opened, which may take long
        talk.open_soon(resume, fork=asked.fork)
        return await _once(talk, query, asked)
    if asked.json or asked.files:
        option = "--json" if asked.json else "--file"
        raise UsageError(f"{option} needs a question", remedy=f"-q QUESTION {option}")
    from hermes_exec_agent.frontends.chat import interactive

    if replay is not None and replay.requests:
        _print_unprompted(talk, asked, replay)
        talk.open_soon(resume, fork=asked.fork)
        return await interactive.run_replay(talk, replay.requests)
    return await interactive.run_interactive(talk, resume=resume, fork=asked.fork, say=say)


async def _print_fall_backs(talk: ChatSession, asked: ChatArguments) -> None:
    """Print a line for each version of a skill that fell back; with ``--json`` the next chat does."""
    if asked.json or asked.quiet or asked.guest:
        return
    from hermes_exec_agent.learning.versions import take_notices

    try:
        notices = await asyncio.to_thread(take_notices, talk.log)
    except HermesError as error:
        notices = [f"skills: {error}"]
    for line in notices:
        talk.display.print_line(line)


async def _once(talk: ChatSession, query: Question, asked: ChatArguments) -> int:
    talk.images = query.images
    answer = await talk.turn(query.text)
    if answer is None:  # only Ctrl-C in an interactive turn returns None
        return INTERRUPTED
    conversation = await talk.conversation()
    checked = await talk.check_answer() if answer.outcome != "interrupted" else None
    ended = await conversation.end_background()
    if not (asked.json or asked.quiet):
        talk.print_news()
    if asked.json:
        payload = {**answer_to_json(conversation, answer), "background_ended": ended}
        if checked is not None:
            payload["check"] = checked.to_json()
        print(json.dumps(payload, ensure_ascii=False), flush=True)
    if has_unread_input(asked):
        talk.display.print_line("standard input was not read; --file - attaches it")
    if answer.outcome in OUTCOME_MESSAGES:
        talk.display.print_line(f"[{OUTCOME_MESSAGES[answer.outcome]}]")
    if answer.outcome == "interrupted":
        return INTERRUPTED
    return 0 if answer.outcome == "answered" else UNANSWERED


def answer_to_json(conversation: Conversation, answer: Answer) -> dict[str, Any]:
    """Return an answer as JSON values."""
    usage = answer.usage
    return {
        "conversation": conversation.id,
        "backend": conversation.place,
        "model": conversation.model.name,
        "scripted": conversation.model.scripted,
        "outcome": answer.outcome,
        "text": answer.text,
        "steps": answer.steps,
        "calls": answer.calls,
        "usage": {
            "prompt": usage.prompt,
            "cached": usage.cached,
            "completion": usage.completion,
            "reasoning": usage.reasoning,
            "cost": usage.cost,
            "estimated": usage.estimated,
        },
    }


def _find_unprompted(asked: ChatArguments, replay: Replay | None) -> frozenset[str]:
    """Return the tools that run without a question although the mode is ``ask``."""
    return replay.harmless if replay is not None and asked.approve == "ask" else frozenset()


def _approvals(asked: ChatArguments, replay: Replay | None) -> Approvals:
    return Approvals(cast("Mode", asked.approve), dict.fromkeys(_find_unprompted(asked, replay), "allow"))


def _print_unprompted(talk: ChatSession, asked: ChatArguments, replay: Replay | None) -> None:
    if _find_unprompted(asked, replay):
        talk.display.print_line(
            "the commands of the demo leave no change behind, so they run without approval; --approve deny denies them"
        )


def _display(asked: ChatArguments, *, fancy: bool) -> TurnDisplay:
    if asked.json:
        return SilentDisplay()
    if fancy:
        from hermes_exec_agent.frontends.chat.screen import ScreenDisplay

        return ScreenDisplay()
    return PlainDisplay(quiet=asked.quiet)
