"""The event that begins a conversation: its system message, and the history that it takes over."""

from __future__ import annotations

import functools
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from hermes_exec_agent.runtime.history import BRANCHED, UNANSWERED, MessageHistory, to_record
from hermes_exec_agent.runtime.named_hosts import find_hosts
from hermes_exec_agent.runtime.system_prompt import system_prompt

if TYPE_CHECKING:
    from hermes_exec_agent.models.protocol import Model
    from hermes_exec_agent.runtime.events.log import EventLog
    from hermes_exec_agent.runtime.options import Options
    from hermes_exec_agent.tools.tool import Context


def create_start_record(context: Context, options: Options, model: Model, remembered: str) -> dict[str, object]:
    """Return the event ``started`` of a conversation; ``remembered`` is what its journal adds to the system message."""
    record: dict[str, object] = {
        "target": context.place,
        "model": model.name,
        "scripted": model.scripted,
        "parent": options.parent,
        "version": _find_version(),
        **context.participant.to_record(),
        "system": system_prompt(context.place, options.instructions, remembered, context.project),
    }
    if options.history:
        record["history"] = [to_record(message) for message in options.history]
        said = (message.content for message in options.history if message.role == "user")
        record["hosts"] = sorted({host for text in said for host in find_hosts(text)})
        if any(message.images for message in options.history):
            record["has_output"] = True
    return record


def read_branch(log: EventLog, other: str, place: str) -> dict[str, object]:
    """Return the events of another conversation as the beginning of a new one; the other stays unchanged."""
    events = log.events(other)
    history = MessageHistory(events)
    history.cut(BRANCHED, UNANSWERED)
    branch: dict[str, object] = {
        "history": [to_record(message) for message in history.messages[1:]],
        "branch_of": {"conversation": other, "upto": events[-1].number if events else 0},
        "hosts": sorted(history.hosts),
        **history.provenance.to_record(),
    }
    if events and events[0].data.get("target") == place:
        branch["system"] = events[0].data["system"]
    return branch


@functools.cache
def _find_version() -> str:
    try:
        return version("hermes-exec")
    except PackageNotFoundError:
        return ""
