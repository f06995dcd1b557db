"""The chat at a terminal."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from hermes_exec.config.paths import state_folder
from hermes_exec.errors import HermesError
from hermes_exec_agent.frontends.chat.display import OUTCOMES, SCRIPTED
from hermes_exec_agent.frontends.chat.keyboard import Keyboard
from hermes_exec_agent.frontends.chat.listing import recalled
from hermes_exec_agent.frontends.chat.prompt import SIGN, Prompt
from hermes_exec_agent.frontends.chat.safe_text import line, safe
from hermes_exec_agent.frontends.chat.session import interrupts
from hermes_exec_agent.frontends.chat.slash_commands import ABOUT, Commands, is_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hermes_exec_agent.frontends.chat.session import Talk


async def interactive(talk: Talk, *, resume: str = "", fork: bool = False, say: Callable[[HermesError], None]) -> int:
    """Talk until the person leaves. ``say`` tells an error in a line."""
    prompt = Prompt(state_folder(os.environ) / "chat_history", ABOUT, lambda: _status(talk))
    commands = Commands(talk, print)
    talk.open_soon(resume, fork=fork)
    main = talk.models.main
    if main.scripted:
        print(f"{SCRIPTED}{safe(main.name)}: the replies were written beforehand, nobody thinks here.")
    if resume:
        how = "a branch of" if fork else "going on with"
        print(f"{how} {resume}: {line(talk.log.title(resume))}", *recalled(talk.log, resume), sep="\n")
    with Keyboard().held():
        goes_on = True
        while goes_on:
            try:
                typed = await prompt.ask()
            except EOFError:
                break
            if is_command(typed):
                goes_on = await _command(commands, typed)
            else:
                try:
                    await _turn(talk, typed.strip())
                except HermesError as error:
                    say(error)
    if (conversation := talk.current) is not None and conversation.messages[1:]:
        print(f"To go on with it: hermes-cli --resume {conversation.id}")
    return 0


def _status(talk: Talk) -> str:
    """The line below the prompt."""
    conversation = talk.current
    if conversation is None:
        return safe(f"{talk.models.main.name} in {talk.target or 'the default place'}  (/help)")
    usage = conversation.usage
    cost = f", ${usage.cost:.4f}" if usage.cost else ""
    tokens = f"{usage.prompt + usage.completion:,} tokens"
    return safe(f"{conversation.model.name} in {conversation.place}, {tokens}{cost}  (/help)")


async def _command(commands: Commands, typed: str) -> bool:
    """Do it, as long as nobody presses Ctrl-C; whether the chat goes on."""
    work = asyncio.ensure_future(commands.do(typed))
    with interrupts(work.cancel):
        await asyncio.wait([work])
    if work.cancelled():
        print(f"[{OUTCOMES['interrupted']}]")
        return True
    return work.result()


async def replayed(talk: Talk, requests: Sequence[str]) -> int:
    """Say what was written beforehand, and show what the replies, and the real tools, make of it.

    Raises:
        HermesError: the place or the script failed, so that the requests that follow would make no sense.
    """
    with Keyboard().held():
        for request in requests:
            print(f"{SCRIPTED}{SIGN}{safe(request)}")
            await _turn(talk, request)
    return 0


async def _turn(talk: Talk, request: str) -> None:
    answer = await talk.turn(request, interruptible=True)
    outcome = answer.outcome if answer is not None else "interrupted"
    if outcome in OUTCOMES:
        print(f"[{OUTCOMES[outcome]}]")
