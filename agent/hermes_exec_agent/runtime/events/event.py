"""Events of conversations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal[
    "started",  # {target, model, scripted, parent, version}
    "user",  # {content}
    # {content, tool_calls: [{id, name, arguments, extras, given_id}], extras, origin, finish, model, usage}; extras and
    # origin as in `Message`
    "assistant",
    # {id, name}: written before a tool runs, so that a call without a result is known after a crash; also {arguments,
    # written: {name, arguments}} if the model wrote another name or other arguments than those of the tool.
    "call",
    "result",  # {id, name, content, duration_s}
    "approval",  # {tool, summary, answer}
    "warning",  # {reason, content}: a guardrail's or the budget's own message to the model
    "compacted",  # {upto, messages}: the messages that replace everything before
    "skill",  # {name, version, outcome}
    "spent",  # {usage}: of a model that a tool asked by itself
    "failed",  # {error}: a turn that ended without an answer
    "interrupted",  # {}
    "ended",  # {reason, content}: the program's list of the turn, if the model wrote no last message
]


@dataclass(frozen=True, slots=True)
class Event:
    """One row of the log."""

    conversation: str
    number: int
    """Counts from 1 in its conversation, without gaps."""
    at: float
    """Seconds since 1970, UTC."""
    kind: Kind
    data: dict[str, Any]
