"""Lists of conversations for users: without empty and delegated ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec.errors import UsageError
from hermes_exec_agent.frontends.chat.safe_text import escape_text, to_line
from hermes_exec_agent.memory.persons import read_participant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermes_exec_agent.memory.persons import Participant
    from hermes_exec_agent.runtime.events import EventLog, Summary

LAST = "last"
"""The name of the newest conversation."""
_PAGE = 50
_RECALLED = 8
"""Lines of the last answer that are shown when a conversation is continued."""


def list_conversations(log: EventLog, limit: int, *, everything: bool = False) -> list[Summary]:
    """Return the newest ``limit`` conversations; ``everything`` includes delegated and empty ones."""
    found: list[Summary] = []
    for each in _every(log):
        if len(found) == limit:
            break
        if everything or (each.turns and not each.parent):
            found.append(each)
    return found


def find_conversation(log: EventLog, word: str, participant: Participant | None = None) -> str:
    """Return the id for a word.

    Args:
        log: the log.
        word: an id, the beginning of one, the ``ID#NUMBER`` of a message, or ``last`` for the newest conversation.
        participant: the only person whose conversations ``last`` means; all if left out.

    Raises:
        UsageError: no conversation or several match.
    """
    if word != LAST:
        return log.find(word.partition("#")[0])
    for each in _every(log):
        if each.turns and not each.parent and participant in {None, read_participant(log, each.id)}:
            return each.id
    raise UsageError("there is no conversation yet", remedy="hermes-exec chat")


def recall_last_turn(log: EventLog, id: str) -> Iterator[str]:
    """Yield lines with the last request of a conversation, and the beginning of its answer."""
    turns: list[tuple[str, str]] = [("", "")]
    for event in log.events(id):
        if event.kind == "user":
            turns.append((str(event.data["content"]), ""))
        elif event.kind in ("assistant", "ended"):
            turns[-1] = turns[-1][0], str(event.data.get("content", "")) or turns[-1][1]
        elif event.kind == "rewound":
            del turns[max(len(turns) - int(event.data["turns"]), 1) :]
    asked, answered = turns[-1]
    yield f"> {to_line(asked, 200)}"
    lines = escape_text(answered).strip().splitlines()
    yield from lines[:_RECALLED]
    if len(lines) > _RECALLED:
        yield f"… {len(lines) - _RECALLED} more lines: hermes-exec conversations show {id}"


def _every(log: EventLog) -> Iterator[Summary]:
    before: str | None = None
    while page := log.conversations(_PAGE, before):
        yield from page
        before = page[-1].id
