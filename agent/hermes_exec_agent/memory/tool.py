"""The tool that remembers: it adds, replaces and removes entries of the journal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from hermes_exec._async import shield_to_completion
from hermes_exec.errors import HermesError, Refused, UsageError
from hermes_exec_agent.memory.entries import FILES, Entry, Operation, apply_operations, check_text
from hermes_exec_agent.memory.origins import create_entry
from hermes_exec_agent.memory.prompt import measure, show_entry
from hermes_exec_agent.memory.screening import find_refusal, find_withholding
from hermes_exec_agent.quoting import quote
from hermes_exec_agent.tools.base import BaseTool, ToolArguments
from hermes_exec_agent.tools.envelope import Envelope, Failure, failure_envelope
from hermes_exec_agent.tools.planning import HERE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_agent.memory.entries import Action, Target
    from hermes_exec_agent.memory.journal import Journal, JournalChange
    from hermes_exec_agent.runtime.events.event import Event
    from hermes_exec_agent.tools.tool import Context

_FULL_FROM = 0.8
"""The part of a limit from which on a notice says that it is nearly reached."""
_SHOWN = 60
_LATER = "it counts in the prompt from the next conversation on; the next request of this one quotes it"


class Full(HermesError):
    """The entries would exceed the limit; nothing was changed."""


class OperationArguments(ToolArguments):
    """One change."""

    action: Literal["add", "replace", "remove"]
    content: str = ""
    old_text: str = ""


class MemoryArguments(ToolArguments):
    """Remember short, lasting facts across conversations: of work in memory, of the person in user; no secrets.

    operations changes several at once, or none.
    """

    target: Literal["memory", "user"] = "memory"
    action: Literal["add", "replace", "remove"] = "add"
    content: str = ""
    old_text: str = Field("", description="Part of the one entry to replace or remove")
    operations: list[OperationArguments] = Field([], max_length=50)


class MemoryTool(BaseTool[MemoryArguments]):
    """Changes the journal. Under the mode ``ask`` each call is asked for, as for other tools that change something."""

    name = "memory"
    position = 125
    in_agent = True
    callable_from_scripts = False
    available_to_delegates = False
    arguments_type = MemoryArguments

    def __init__(self) -> None:
        super().__init__()
        self._full_turn = 0
        """The number of the request in which a write did not fit."""
        self._ended_turn = 0
        """The number of the request in which no more writes are tried."""

    def summary(self, args: MemoryArguments) -> str:
        """Return the changes, each with its text."""
        texts = [f"{each.action} {quote(each.content or each.old_text, 1000)}" for each in _list_changes(args)]
        return f"{FILES[args.target]}: {'; '.join(texts)}"

    async def run(self, args: MemoryArguments, context: Context) -> Envelope:
        """Change the journal; a cancelled call has changed all of it or nothing."""
        journal = context.journal
        if journal is None or args.target not in journal.limits:
            raise UsageError(f"{FILES[args.target]} is not enabled", remedy="the other target")
        return await shield_to_completion(asyncio.to_thread(self._change, args, context, journal), limit_s=None)

    def _change(self, args: MemoryArguments, context: Context, journal: Journal) -> Envelope:
        events = journal.events_of(context.conversation)
        turn = max((each.number for each in events if each.kind == "user"), default=0)
        if turn and turn == self._ended_turn:
            return failure_envelope(HERE, Failure("full", "no more writes in this request: go on without it"))
        operations = [self._to_operation(each, args.target, events, context) for each in _list_changes(args)]
        limit = journal.limits[args.target]

        def change(entries: list[Entry]) -> list[Entry]:
            after = apply_operations(entries, operations)
            size = measure(args.target, after)
            if size > limit and size > measure(args.target, entries):
                raise Full(_describe_full(args.target, entries, size, limit))
            return after

        try:
            changed = journal.write(
                args.target, change, who="agent", why=quote(context.request, 200), source=context.conversation
            )
        except Full as error:
            return self._refuse(error, turn, args.target, context, limit)
        return _describe_change(args.target, changed, limit, context)

    def create_entry(self, text: str, events: Sequence[Event], context: Context) -> Entry:
        """Return an entry with the origin of its text."""
        provenance = context.provenance
        return create_entry(text, events, has_output=provenance.has_output or bool(provenance.parts))

    def _to_operation(
        self, args: OperationArguments, target: Target, events: Sequence[Event], context: Context
    ) -> Operation:
        action: Action = args.action
        if action == "remove":
            return Operation(action, old_text=args.old_text or args.content)
        text = check_text(args.content)
        redacted = context.models.redactor.redact(text) if context.models is not None else text
        if reason := find_refusal(text) or ("a secret" if redacted != text else ""):
            raise Refused(f"this may not be remembered: it has {reason}", remedy="leave that out")
        entry = self.create_entry(text, events, context)
        if entry.origin == "untrusted" and target == "user":
            raise Refused(
                "USER.md has the person's own words alone, and this may come from text that was read",
                remedy="ask the person with clarify, or use the target memory",
            )
        return Operation(action, entry, args.old_text)

    def _refuse(self, error: Full, turn: int, target: Target, context: Context, limit: int) -> Envelope:
        if self._full_turn == turn:
            self._ended_turn = turn
            message = f"{FILES[target]}: it still does not fit, and nothing was written; go on without it"
            return failure_envelope(HERE, Failure("full", message))
        self._full_turn = turn
        context.tell(f"{FILES[target]} is full ({limit} characters), so that something was not remembered")
        return failure_envelope(HERE, Failure("full", str(error)))


def _list_changes(args: MemoryArguments) -> Sequence[OperationArguments]:
    if args.operations:
        return args.operations
    return [OperationArguments(action=args.action, content=args.content, old_text=args.old_text)]


def _describe_full(target: Target, entries: Sequence[Entry], size: int, limit: int) -> str:
    sizes = "; ".join(f"{len(show_entry(each)) + 1}: {quote(each.text, _SHOWN)}" for each in entries)
    return (
        f"{FILES[target]} would have {size} of {limit} characters; nothing was written. Replace or remove some in one "
        f"call with operations. Entries by size: {sizes}"
    )


def _describe_change(target: Target, changed: JournalChange, limit: int, context: Context) -> Envelope:
    before, after = measure(target, changed.before), measure(target, changed.after)
    notes: list[str] = []
    if changed.before == changed.after:
        notes.append("it has that already; nothing was changed")
    for each in changed.after:
        if each not in changed.before and (reason := find_withholding(each.text)):
            notes.append(f"prompts withhold this entry because of {reason}")
        elif each not in changed.before and each.origin == "untrusted":
            notes.append("it is kept as a quotation, as it may come from text that was read")
    if changed.set_aside:
        notes.append("the person edited the file; entries that it lacked are kept next to it")
    if before < _FULL_FROM * limit <= after:
        notes.append("it is nearly full")
        context.tell(f"{FILES[target]} is nearly full: {after} of {limit} characters")
    text = f"{FILES[target]}: {len(changed.after)} entries, {after} of {limit} characters; {_LATER}"
    return Envelope(ok=True, place=HERE, output=text, note="; ".join(notes))
