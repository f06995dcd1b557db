"""The chat at a terminal."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hermes_exec.config.paths import state_folder
from hermes_exec.errors import HermesError
from hermes_exec_agent.chat.commands import ABOUT, Commands
from hermes_exec_agent.chat.display import OUTCOMES, SCRIPTED
from hermes_exec_agent.chat.keyboard import Keyboard
from hermes_exec_agent.chat.prompt import SIGN, Prompt
from hermes_exec_agent.chat.text import line, safe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hermes_exec_agent.chat.talk import Talk


async def interactive(talk: Talk, *, resume: str = "", say: Callable[[HermesError], None]) -> int:
    """Talk until the person leaves. ``say`` tells an error in a line."""
    models = talk.models

    def status() -> str:
        conversation = talk.current
        model = conversation.model if conversation else models.main
        used = f", {conversation.usage.prompt + conversation.usage.completion:,} tokens" if conversation else ""
        return safe(f"{model.name} in {talk.target or 'the default place'}{used}  (/help)")

    prompt = Prompt(state_folder(os.environ) / "chat_history", ABOUT, status)
    commands = Commands(talk, print)
    talk.open_soon(resume)
    if models.main.scripted:
        print(f"{SCRIPTED}{safe(models.main.name)}: the replies were written beforehand, nobody thinks here.")
    if resume:
        print(f"going on with {resume}: {line(talk.log.title(resume))}")
    goes_on = True
    while goes_on:
        try:
            typed = (await prompt.ask()).strip()
        except EOFError:
            break
        if typed.startswith("/"):
            goes_on = await commands.do(typed)
        else:
            await _turn(talk, typed, say)
    return 0


async def replayed(talk: Talk, requests: Sequence[str], say: Callable[[HermesError], None]) -> int:
    """Say what was written beforehand, and show what the replies, and the real tools, make of it."""
    for request in requests:
        print(f"{SCRIPTED}{SIGN}{safe(request)}")
        await _turn(talk, request, say)
    return 0


async def _turn(talk: Talk, request: str, say: Callable[[HermesError], None]) -> None:
    try:
        with Keyboard().held():
            answer = await talk.turn(request, interruptible=True)
    except HermesError as error:
        say(error)
        return
    outcome = answer.outcome if answer is not None else "interrupted"
    if outcome in OUTCOMES:
        print(f"[{OUTCOMES[outcome]}]")
