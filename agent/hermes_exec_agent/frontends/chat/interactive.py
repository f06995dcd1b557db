"""The interactive chat at a terminal."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from hermes_exec.config.paths import state_folder
from hermes_exec.errors import HermesError
from hermes_exec_agent.frontends.chat.display import OUTCOME_MESSAGES, SCRIPTED
from hermes_exec_agent.frontends.chat.keyboard import Keyboard
from hermes_exec_agent.frontends.chat.listing import recall_last_turn
from hermes_exec_agent.frontends.chat.prompt import PROMPT_SIGN, Prompt
from hermes_exec_agent.frontends.chat.safe_text import escape_text, to_line
from hermes_exec_agent.frontends.chat.session import on_interrupt
from hermes_exec_agent.frontends.chat.slash_commands import COMMAND_HELP, SlashCommands, is_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hermes_exec_agent.frontends.chat.session import ChatSession


async def run_interactive(
    talk: ChatSession, *, resume: str = "", fork: bool = False, say: Callable[[HermesError], None]
) -> int:
    """Chat until the user leaves. ``say`` reports an error in one line."""
    prompt = Prompt(state_folder(os.environ) / "chat_history", COMMAND_HELP, lambda: _status(talk))
    commands = SlashCommands(talk, print)
    talk.open_soon(resume, fork=fork)
    main = talk.models.main
    if main.scripted:
        print(f"{SCRIPTED}{escape_text(main.name)}: the replies come from a file, and no model is asked.")
    if resume:
        how = "new conversation from" if fork else "continuing"
        print(f"{how} {resume}: {to_line(talk.log.title(resume))}", *recall_last_turn(talk.log, resume), sep="\n")
    with Keyboard().hold_input():
        running = True
        while running:
            try:
                typed = await prompt.ask()
            except EOFError:
                break
            if is_command(typed):
                running = await _command(commands, typed)
                typed = commands.take_request()
            if running and typed.strip():
                try:
                    await _turn(talk, typed.strip())
                except HermesError as error:
                    say(error)
    if (conversation := talk.current) is not None and conversation.messages[1:]:
        print(f"To continue: hermes-cli --resume {conversation.id}")
    return 0


def _status(talk: ChatSession) -> str:
    """Return the line below the prompt."""
    conversation = talk.current
    if conversation is None:
        return escape_text(f"{talk.models.main.name} in {talk.target or 'the default target'}  (/help)")
    usage = conversation.usage
    cost = f", ${usage.cost:.4f}" if usage.cost else ""
    tokens = f"{usage.prompt + usage.completion:,} tokens"
    if usage.cached:
        tokens += f", {usage.cached / usage.prompt:.0%} of the prompts from a cache"
    return escape_text(f"{conversation.model.name} in {conversation.place}, {tokens}{cost}  (/help)")


async def _command(commands: SlashCommands, typed: str) -> bool:
    """Run a slash command, which Ctrl-C cancels; return whether the chat continues."""
    work = asyncio.ensure_future(commands.run(typed))
    with on_interrupt(work.cancel):
        await asyncio.wait([work])
    if work.cancelled():
        print(f"[{OUTCOME_MESSAGES['interrupted']}]")
        return True
    return work.result()


async def run_replay(talk: ChatSession, requests: Sequence[str]) -> int:
    """Send scripted requests, and show the scripted replies and the results of the real tools.

    Raises:
        HermesError: the target or the script failed; the remaining requests are not sent.
    """
    with Keyboard().hold_input():
        for request in requests:
            print(f"{SCRIPTED}{PROMPT_SIGN}{escape_text(request)}")
            await _turn(talk, request)
    return 0


async def _turn(talk: ChatSession, request: str) -> None:
    answer = await talk.turn(request, interruptible=True)
    outcome = answer.outcome if answer is not None else "interrupted"
    if outcome in OUTCOME_MESSAGES:
        print(f"[{OUTCOME_MESSAGES[outcome]}]")
    if outcome != "interrupted":
        await talk.check_answer(interruptible=True)
    talk.print_news()
