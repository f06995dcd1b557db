"""Options of a conversation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hermes_exec_agent.runtime.events.turn_lock import LEASE_S
from hermes_exec_agent.runtime.guardrails import Guardrails

if TYPE_CHECKING:
    from hermes_exec.config.settings import AgentSettings
    from hermes_exec_agent.models.messages import Message

BUDGET = 90
"""Replies in one turn, without a configuration."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a conversation; the defaults suit a person at a terminal."""

    budget: int | None = None
    """Replies in one turn; by default as configured, or `BUDGET` without a configuration."""
    most_cost: float | None = None
    """US dollars of one turn, with the tasks that it delegates; by default as configured."""
    most_cost_day: float | None = None
    """US dollars of a day, over all conversations of the log; by default as configured."""
    unattended: bool = False
    """Whether no person watches, so that guardrails may stop a turn."""
    instructions: str = ""
    """Added to the system message, which stays the same for the whole conversation."""
    history: tuple[Message, ...] = ()
    """Earlier messages, from another program."""
    parent: str = ""
    """The conversation that delegated this one."""
    window: int | None = None
    """Tokens; the model's own if left out."""
    max_tokens: int | None = None
    """Of each reply."""
    turn_lease_s: float = LEASE_S
    """Seconds after which a program on another machine may take over a turn whose lease was not renewed; see
    `events.turn_lock`. It is renewed after each third of them."""
    branch_of: str = ""
    """The conversation whose events a new one begins with."""
    time_limit_s: float | None = None
    """Of a turn; running calls are stopped at its end."""
    refunded: frozenset[str] = frozenset({"execute_code"})
    """Tools that make many calls from one program: a reply with calls of these alone does not count."""
    patient: frozenset[str] = frozenset({"process", "clarify"})
    """Tools for which repeated identical calls are legitimate."""
    guardrails: Guardrails | None = None
    """Thresholds of warnings and stops; by default as configured."""

    def with_settings(self, agent: AgentSettings) -> Options:
        """Return these options with the configured value of each that was left out; instructions are joined."""
        texts = (agent.instructions.strip(), self.instructions.strip())
        return replace(
            self,
            budget=agent.budget if self.budget is None else self.budget,
            most_cost=agent.most_cost if self.most_cost is None else self.most_cost,
            most_cost_day=agent.most_cost_day if self.most_cost_day is None else self.most_cost_day,
            guardrails=self.guardrails or Guardrails.of_settings(agent.guardrails),
            instructions="\n\n".join(filter(None, texts)),
        )
