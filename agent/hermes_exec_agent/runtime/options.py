"""How a conversation is held."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_exec_agent.runtime.events.turn_lock import LEASE_S
from hermes_exec_agent.runtime.guardrails import Guardrails

if TYPE_CHECKING:
    from hermes_exec_agent.models.messages import Message


@dataclass(frozen=True, slots=True)
class Options:
    """The defaults fit a person at a terminal."""

    budget: int = 90
    """Replies in one turn."""
    unattended: bool = False
    """Nobody watches, so guardrails do not only warn: they stop."""
    instructions: str = ""
    """Added to the prompt's beginning, which stays the same for the whole conversation."""
    history: tuple[Message, ...] = ()
    """What was said before, by another program."""
    parent: str = ""
    """The conversation that this one was delegated from."""
    window: int | None = None
    """Tokens; the model's own if left out."""
    max_tokens: int | None = None
    """Of each reply."""
    turn_lease_s: float = LEASE_S
    """Seconds after which a turn may be taken over by a program on another machine, unless it is renewed; see
    `events.turnlock`. It is renewed in each third of them."""
    branch_of: str = ""
    """The id of the conversation whose record a new one begins with."""
    time_limit_s: float | None = None
    """Of a turn; what runs at its end is stopped."""
    refunded: frozenset[str] = frozenset({"execute_code"})
    """Tools that make many calls from one program: a reply that asks for these alone is not counted."""
    patient: frozenset[str] = frozenset({"process", "clarify"})
    """Tools for which it is right to be asked the same again and again."""
    guardrails: Guardrails = field(default_factory=Guardrails)
