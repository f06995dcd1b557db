"""What a reviewer may use: memory and skills, and no target."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from hermes_exec.errors import Refused, Unsupported
from hermes_exec_agent.memory.origins import create_entry
from hermes_exec_agent.memory.tool import MemoryTool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_agent.memory.entries import Entry, Operation, Target
    from hermes_exec_agent.memory.tool import OperationArguments
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
    If these conversations read text from outside, an entry in the person's words is replaced by such words alone, as no
    person sees the change before it is made.
    """

    def __init__(self, reviewed: Sequence[Sequence[Event]]) -> None:
        """``reviewed`` are the events of each conversation."""
        super().__init__()
        self._reviewed = reviewed

    def create_entry(self, text: str, events: Sequence[Event], context: Context) -> Entry:  # noqa: ARG002  not the review's own
        """Return the entry with its origin in the reviewed conversations."""
        found = [create_entry(text, each, has_output=_has_outside_text(context)) for each in self._reviewed]
        return next((each for each in found if each.origin == "person"), found[-1])

    def _to_operation(
        self, args: OperationArguments, target: Target, events: Sequence[Event], context: Context
    ) -> Operation:
        operation = super()._to_operation(args, target, events, context)
        if (
            operation.action != "add"
            and (operation.action == "remove" or operation.entry.origin != "person")
            and _has_outside_text(context)
            and context.journal is not None
            and _is_of_person(context.journal.read(target), operation.old_text)
        ):
            raise Refused(
                "text from outside was read, so that the person's own words alone replace an entry of the person",
                remedy="leave the entry as it is",
            )
        return operation


def _has_outside_text(context: Context) -> bool:
    return context.provenance.has_output or bool(context.provenance.parts)


def _is_of_person(entries: Sequence[Entry], old_text: str) -> bool:
    """Return whether the text may be that of an entry in the person's words."""
    return any(each.origin == "person" and old_text.strip() in each.text for each in entries)
