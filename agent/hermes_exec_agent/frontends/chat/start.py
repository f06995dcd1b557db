"""Start a chat from its arguments: one question, a replay, or an interactive chat."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.config.plan import is_unconfigured
from hermes_exec.errors import HermesError, UsageError
from hermes_exec.observe.redact import Redactor
from hermes_exec_agent.frontends.chat.approver import TerminalApprover
from hermes_exec_agent.frontends.chat.display import OUTCOME_MESSAGES, PlainDisplay, SilentDisplay
from hermes_exec_agent.frontends.chat.keyboard import Keyboard
from hermes_exec_agent.frontends.chat.listing import LAST, find_conversation
from hermes_exec_agent.frontends.chat.question import has_unread_input, read_question
from hermes_exec_agent.frontends.chat.session import ChatSession
from hermes_exec_agent.learning.curator_schedule import start_if_due
from hermes_exec_agent.learning.proposals_watch import check_configuration
from hermes_exec_agent.learning.review_schedule import start_if_enabled
from hermes_exec_agent.memory.persons import check_participant, choose_participant
from hermes_exec_agent.models.protocol import refuse_blind
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.tools.absent_person import AbsentPerson
from hermes_exec_agent.tools.tool import Approvals, to_safe_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hermes_exec.config.secrets import Secret
    from hermes_exec.config.settings import Settings
    from hermes_exec_agent.frontends.chat.arguments import ChatArguments
    from hermes_exec_agent.frontends.chat.display import TurnDisplay
    from hermes_exec_agent.frontends.chat.question import Question
    from hermes_exec_agent.frontends.chat.replay import Replay
    from hermes_exec_agent.models import Models
    from hermes_exec_agent.runtime import Answer, Conversation
    from hermes_exec_agent.tools.tool import Mode

UNANSWERED = 1
"""The exit code of a turn without an answer from the model: budget, guardrail or filter."""
INTERRUPTED = 130
_AUDITS_S = 2.0
"""How long the program waits at its end for an audit that runs."""


async def start_chat(
    asked: ChatArguments, say: Callable[[HermesError], None], *, cwd: str | None = None, secrets: Sequence[Secret] = ()
) -> int:
    """Run a chat and return its exit code.

    ``say`` reports errors after which the chat continues. ``cwd`` is the folder of the target to start in. The
    ``secrets`` of the target are removed from the record.

    Raises:
        NoModel: there is no model.
        HermesError: the arguments are wrong, or the target or the model failed to answer the question.
    """
    settings = read_settings()
    participant = choose_participant(settings, asked.person, guest=asked.guest)
    replay = _replay(asked)
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    models = _models(asked, replay)
    plays = replay is not None and bool(replay.requests) and asked.query is None
    query = None if plays else read_question(asked)
    if query is not None and query.images:
        refuse_blind(models.main)
    display = _display(asked, fancy=at_terminal and query is None)
    with EventLog.of_user(redactor=Redactor((*secrets, *models.secrets))) as log:
        talk = ChatSession(
            asked.on,
            models=models,
            log=log,
            display=display,
            person=TerminalApprover(Keyboard(), display.hold) if sys.stdin.isatty() else AbsentPerson(),
            approvals=_approvals(asked, replay),
            cases=asked.case,
            cwd=cwd,
            budget=asked.budget,
            most_cost=asked.most_cost,
            mends=asked.improve,
            unattended=not sys.stdin.isatty(),
            participant=participant,
            check=asked.check,
        )
        if line := check_configuration(log, os.environ, enabled=settings is not None and settings.learning.proposals):
            print(f"hermes-exec: {to_safe_line(line)}", file=sys.stderr)
        try:
            return await _talk(talk, asked, query, replay, say)
        finally:
            current = talk.current
            await talk.close()
            await models.close()
            if current is not None and replay is None:
                start_if_due(log, ending=current.id)
                start_if_enabled(log)
            _wait_for_audits()


def read_settings() -> Settings | None:
    """Return the settings; None if nothing is configured, as what checks them takes as long to import as the prompt."""
    if is_unconfigured(os.environ):
        return None
    from hermes_exec.config.load import load_settings

    return load_settings()


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


def _replay(asked: ChatArguments) -> Replay | None:
    if asked.replay is None:
        return None
    if asked.model is not None:
        raise UsageError("--replay excludes --model", remedy="leave one of them out")
    from hermes_exec_agent.frontends.chat.replay import read_replay

    return read_replay(asked.replay)


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


def _models(asked: ChatArguments, replay: Replay | None) -> Models:
    from hermes_exec_agent.models import Models, load_models

    if replay is not None:
        return Models(replay.model)
    models = load_models()
    return models if asked.model is None else models.with_main(asked.model)


def _display(asked: ChatArguments, *, fancy: bool) -> TurnDisplay:
    if asked.json:
        return SilentDisplay()
    if fancy:
        from hermes_exec_agent.frontends.chat.screen import ScreenDisplay

        return ScreenDisplay()
    return PlainDisplay(quiet=asked.quiet)
