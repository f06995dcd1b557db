"""What is recorded of a conversation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal[
    "started",  # {target, model, scripted, parent, version}
    "user",  # {content}
    # {content, tool_calls: [{id, name, arguments, extras, given_id}], extras, origin, finish, model, usage}; extras and
    # origin as in `Message`
    "assistant",
    # {id, name}: written before a tool runs, so that after a crash a call without a result is known; also {arguments,
    # written: {name, arguments}} where a model wrote another name or other arguments than those of the tool.
    "call",
    "result",  # {id, name, content, duration_s}
    "approval",  # {tool, summary, answer}
    "warning",  # {reason, content}: a guardrail's or the budget's own message to the model
    "compacted",  # {upto, messages}: what stands for everything before
    "skill",  # {name, version, outcome}
    "spent",  # {usage}: what a model took that a tool asked by itself
    "failed",  # {error}: a turn that ended without an answer
    "interrupted",  # {}
    "ended",  # {reason, content}: the program's own list of the turn, where the model wrote no last word
]


@dataclass(frozen=True, slots=True)
class Event:
    """One row of the log."""

    conversation: str
    number: int
    """Counts from 1 in its conversation, without a gap."""
    at: float
    """Seconds since 1970, UTC."""
    kind: Kind
    data: dict[str, Any]
