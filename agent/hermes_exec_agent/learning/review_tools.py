"""What a reviewer may use: memory and skills, and no target."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from hermes_exec.errors import Unsupported
from hermes_exec_agent.memory.origins import create_entry
from hermes_exec_agent.memory.tool import MemoryTool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_agent.memory.entries import Entry
    from hermes_exec_agent.runtime.events.event import Event
    from hermes_exec_agent.tools.tool import Context

PLACE = "review"
"""Stands in the record for the target, which a review does not have."""


class NoTerminal:
    """Stands for the terminal of a conversation that has no target."""

    kind = "none"

    def __getattr__(self, name: str) -> NoReturn:
        raise Unsupported("a review has no target, and runs no command")


class Absent:
    """Stands for the person, whom a review never asks: each question is refused."""

    async def approve(self, tool: str, summary: str, scope: str = "") -> bool:  # noqa: ARG002  the interface of a person
        """Refuse."""
        raise Unsupported("no person answers in a review")

    async def clarify(self, question: str, choices: Sequence[str]) -> str:  # noqa: ARG002  the interface of a person
        """Refuse."""
        raise Unsupported("no person answers in a review")


class ReviewMemory(MemoryTool):
    """Changes the journal by what was said in the reviewed conversations.

    The origin of an entry comes from their events: the reviewer's own request repeats them, and is no word of a person.
    """

    def __init__(self, reviewed: Sequence[Sequence[Event]]) -> None:
        """``reviewed`` are the events of each conversation."""
        super().__init__()
        self._reviewed = reviewed

    def create_entry(self, text: str, events: Sequence[Event], context: Context) -> Entry:  # noqa: ARG002  not the review's own
        """Return the entry with its origin in the reviewed conversations."""
        has_output = context.provenance.has_output or bool(context.provenance.parts)
        found = [create_entry(text, each, has_output=has_output) for each in self._reviewed]
        return next((each for each in found if each.origin == "person"), found[-1])
