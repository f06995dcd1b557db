"""Recorded conversations over HTTP: their list, their messages, and their titles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_exec.errors import UsageError
from hermes_exec.terminal.encoding import parse_number
from hermes_exec_agent.memory.persons import Participant, read_participant
from hermes_exec_agent.runtime.history import MessageHistory

if TYPE_CHECKING:
    from hermes_exec_agent.runtime.events import EventLog
    from hermes_exec_agent.runtime.events.queries import Summary

_MOST = 200


def parse_limit(text: str) -> int:
    """Return the number of conversations of a page.

    Raises:
        UsageError: it is not a number from 1 to 200.
    """
    limit = parse_number(text, 1, _MOST)
    if limit is None:
        raise UsageError(f"limit: it should be a number from 1 to {_MOST}")
    return limit


def list_sessions(log: EventLog, participant: Participant, limit: int, before: str | None) -> dict[str, Any]:
    """Return the latest conversations of a person; ``before`` is the id of the last one of the preceding page."""
    found: list[Summary] = []
    while len(found) <= limit:
        page = log.conversations(_MOST, before)
        found += [each for each in page if not each.parent and read_participant(log, each.id) == participant]
        if len(page) < _MOST:
            break
        before = page[-1].id
    shown = [_describe(each) for each in found[:limit]]
    return {"object": "list", "data": shown, "has_more": len(found) > limit}


def _describe(summary: Summary) -> dict[str, Any]:
    return {
        "id": summary.id, "object": "hermes.session", "title": summary.title, "started_at": summary.started,
        "last_active": summary.last, "message_count": summary.turns, "target": summary.target, "model": summary.model,
    }  # fmt: skip


def list_messages(log: EventLog, id: str) -> dict[str, Any]:
    """Return the messages of a conversation as its model reads them, without the system message."""
    history = MessageHistory(log.events(id))
    data = [each.to_wire() for each in history.messages if each.role != "system"]
    return {"object": "list", "session_id": id, "data": data}
