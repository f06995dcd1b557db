"""Approvals and answers by the user at the terminal while a turn runs."""

from __future__ import annotations

import asyncio
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

from hermes_exec.terminal.encoding import parse_number
from hermes_exec_agent.frontends.chat.safe_text import escape_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from hermes_exec_agent.frontends.chat.keyboard import Keyboard

_ANSWERS = {"y": True, "yes": True, "n": False, "no": False, "": False}
_COMMANDS = "terminal"
"""The tool whose lasting approvals cover patterns of commands."""
_ALWAYS = frozenset({"a", "always"})


class TerminalApprover:
    """Asks on standard error and reads the answer from the keyboard.

    Cancellation withdraws a question. Ctrl-C during a question interrupts the turn, as at any other moment.
    """

    def __init__(self, keyboard: Keyboard, hold: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        """``hold`` keeps the screen as it is during each question."""
        self._keyboard = keyboard
        self._hold = hold
        self._always: set[tuple[str, str]] = set()
        self._turn = asyncio.Lock()  # tool calls run concurrently, questions do not

    async def approve(self, tool: str, summary: str, scope: str = "") -> bool:
        """Ask whether a call may run. An empty line and the end of the input mean no."""
        async with self._turn:
            if (tool, scope) in self._always:
                return True
            lasting = _describe_lasting(tool, summary, scope)
            question = f"{escape_text(tool)}: {escape_text(summary)}\nAllow? [y]es, [n]o, [a]lways for {lasting}: "
            while True:
                answer = (await self._ask(question)).lower()
                if answer in _ALWAYS:
                    self._always.add((tool, scope))
                    return True
                if answer in _ANSWERS:
                    return _ANSWERS[answer]
                question = "Please answer y, n or a: "

    @property
    def lasting(self) -> list[tuple[str, str]]:
        """The tools that run without a question from now on, each with what that covers; empty for all calls."""
        return sorted(self._always)

    def forget(self, tool: str, scope: str) -> None:
        """Ask for these calls again."""
        self._always.discard((tool, scope))

    async def clarify(self, question: str, choices: Sequence[str]) -> str:
        """Ask a question, and return the text of the answer or the choice whose number was typed."""
        async with self._turn:
            listed = "".join(f"\n  {number}. {escape_text(choice)}" for number, choice in enumerate(choices, 1))
            answer = await self._ask(f"{escape_text(question)}{listed}\n> ")
            number = parse_number(answer, 1, len(choices))
            return answer if number is None else choices[number - 1]

    async def _ask(self, question: str) -> str:
        with self._hold(), self._keyboard.line_mode():
            print(question, end="", file=sys.stderr, flush=True)
            return (await self._keyboard.read_line()).strip()


def _describe_lasting(tool: str, summary: str, scope: str) -> str:
    """Return what the answer "always" covers."""
    if not scope:
        return "this tool"
    if scope == summary:
        return "this act"
    return escape_text(scope) if tool == _COMMANDS else "this path"
