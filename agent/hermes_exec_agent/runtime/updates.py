"""Updates that a turn sends to its listener."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from hermes_exec_agent.models.protocol import Retried, Text, Thought

if TYPE_CHECKING:
    from hermes_exec_agent.models.messages import ToolCall
    from hermes_exec_agent.models.protocol import Reply, Usage
    from hermes_exec_agent.tools.envelope import Envelope

__all__ = [
    "Answer",
    "CallEnded",
    "CallStarted",
    "Compacted",
    "Delegated",
    "Ended",
    "Outcome",
    "Replied",
    "Retried",
    "Steered",
    "Text",
    "Thought",
    "Update",
    "Warned",
]

Outcome = Literal["answered", "budget", "stopped", "length", "filtered", "empty", "interrupted"]
"""Why a turn ended: it was answered; its budget was spent; a guardrail or the time limit stopped it; the reply was
cut at its limit or by the endpoint's filter; the model's replies were empty; the person interrupted it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of a turn."""

    text: str
    outcome: Outcome
    usage: Usage
    """Of all replies of the turn, with summaries."""
    steps: int
    """Replies that were requested."""
    calls: int
    """Tool calls that ran."""


@dataclass(frozen=True, slots=True)
class Replied:
    """A complete reply of the model; its text came before, in pieces."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A tool call begins."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A tool call has ended."""

    call: ToolCall
    envelope: Envelope
    duration_s: float


@dataclass(frozen=True, slots=True)
class Warned:
    """A guardrail or the budget warned the model, or the model could not be asked for its last message."""

    reason: str
    content: str


@dataclass(frozen=True, slots=True)
class Steered:
    """The model reads words of the person that were added during the turn."""

    content: str


@dataclass(frozen=True, slots=True)
class Delegated:
    """An update of a delegated conversation."""

    update: CallEnded | Warned | Retried
    task: str = ""
    """The id of its task among those that run at once; empty if there is one alone."""
    title: str = ""
    """The first line of the task."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """Old parts of the conversation were cleared or summarized."""

    before: int
    """Tokens, about."""
    after: int
    how: str
    """`cleared`, `summarised`, or `listed` if no model could summarize."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The last update of a turn."""

    answer: Answer


Update: TypeAlias = (
    "Text | Thought | Retried | Replied | CallStarted | CallEnded | Warned | Steered | Delegated | Compacted | Ended"
)
