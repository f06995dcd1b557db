"""The interactive chat at a terminal."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import TYPE_CHECKING

from hermes_exec.config.paths import state_folder
from hermes_exec.errors import HermesError
from hermes_exec_agent.frontends.chat.display import OUTCOME_MESSAGES, SCRIPTED
from hermes_exec_agent.frontends.chat.first_prompt import PROMPT_SIGN
from hermes_exec_agent.frontends.chat.keyboard import Keyboard
from hermes_exec_agent.frontends.chat.listing import recall_last_turn
from hermes_exec_agent.frontends.chat.prompt import Prompt
from hermes_exec_agent.frontends.chat.safe_text import escape_text, to_line
from hermes_exec_agent.frontends.chat.session import ignore_interrupt, on_interrupt
from hermes_exec_agent.frontends.chat.slash_commands import COMMAND_HELP, SlashCommands, is_command, runs_at_once
from hermes_exec_agent.frontends.chat.turn_input import TurnInput

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hermes_exec_agent.frontends.chat.session import ChatSession


async def run_interactive(
    talk: ChatSession, *, resume: str = "", fork: bool = False, say: Callable[[HermesError], None]
) -> int:
    """Chat until the user leaves. ``say`` reports an error in one line."""
    chat = _InteractiveChat(talk, say)
    talk.choose_opening(resume, fork=fork)
    main = talk.models.main
    if main.scripted:
        print(f"{SCRIPTED}{escape_text(main.name)}: the replies come from a file, and no model is asked.")
    if resume:
        how = "new conversation from" if fork else "continuing"
        print(f"{how} {resume}: {to_line(talk.log.title(resume))}", *recall_last_turn(talk.log, resume), sep="\n")
    with Keyboard().hold_input(), ignore_interrupt():
        await chat.run()
    if (conversation := talk.current) is not None and conversation.messages[1:]:
        print(f"To continue: hermes-cli --resume {conversation.id}")
    return 0


class _InteractiveChat:
    """A chat at a terminal: prompts, turns, and what is typed during them."""

    def __init__(self, talk: ChatSession, say: Callable[[HermesError], None]) -> None:
        self._talk = talk
        self._say = say
        # The imports of a conversation take longer than the prompt, which the user waits for.
        self._prompt = Prompt(
            state_folder(os.environ) / "chat_history", COMMAND_HELP, lambda: _status(talk), shown=talk.open_chosen
        )
        self._commands = SlashCommands(talk, print)
        self._commands_in_turn = SlashCommands(talk, talk.display.print_beside)
        self._input = TurnInput(talk.display.show_typed, self._enter)
        self._queue: deque[str] = deque()
        """Lines that were entered during a turn."""
        self._tasks: set[asyncio.Task[None]] = set()
        """Commands that were entered during a turn and run at once."""

    async def run(self) -> None:
        """Chat until the user leaves."""
        running = True
        while running:
            try:
                typed = await self._next_line()
            except EOFError:
                break
            if is_command(typed):
                running = await _command(self._commands, typed)
                typed = self._commands.take_request()
            if running and typed.strip():
                await self._turn(typed.strip())

    async def _next_line(self) -> str:
        """Return the next line of the queue, or of the prompt.

        Raises:
            EOFError: the user leaves.
        """
        if self._queue:
            line = self._queue.popleft()
            print(f"{PROMPT_SIGN}{escape_text(line)}")
            return line
        if self._input.leaves:
            raise EOFError
        return await self._prompt.ask(self._input.take_text())

    async def _turn(self, request: str) -> None:
        outcome = ""
        try:
            with self._input.read():
                try:
                    outcome = await run_turn(self._talk, request)
                finally:
                    await asyncio.gather(*self._tasks, return_exceptions=True)  # Ctrl-C may cancel what they wait for
        except HermesError as error:
            self._say(error)
        finally:
            self._talk.display.show_typed("")
            self._take_steering()
            if outcome in ("", "interrupted"):
                self._drop_queue()

    def _enter(self, line: str) -> None:
        """Queue a line, or run it if it is a command that does not wait for the end of the turn."""
        self._prompt.remember(line)
        if runs_at_once(line):
            task = asyncio.ensure_future(self._run_at_once(line))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._add(line)

    async def _run_at_once(self, line: str) -> None:
        await self._commands_in_turn.run(line)
        if request := self._commands_in_turn.take_request():
            self._add(request)

    def _add(self, line: str) -> None:
        self._queue.append(line)
        self._talk.display.print_beside(f"queued: {to_line(line)}")

    def _take_steering(self) -> None:
        """Put the words that the turn did not deliver before the queue, as the next request."""
        conversation = self._talk.current
        if conversation is not None and (words := conversation.take_steering()):
            self._queue.appendleft("\n".join(words))

    def _drop_queue(self) -> None:
        for line in self._queue:
            print(f"not sent: {to_line(line)}")
        self._queue.clear()
        self._input.take_text()


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
            await run_turn(talk, request)
    return 0


async def run_turn(talk: ChatSession, request: str) -> str:
    """Send a request, check its answer, and return the outcome."""
    answer = await talk.turn(request, interruptible=True)
    outcome = answer.outcome if answer is not None else "interrupted"
    if outcome in OUTCOME_MESSAGES:
        print(f"[{OUTCOME_MESSAGES[outcome]}]")
    if outcome != "interrupted":
        await talk.check_answer(interruptible=True)
    talk.print_news()
    return outcome
