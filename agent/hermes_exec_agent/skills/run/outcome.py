"""The result of a run of a skill."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hermes_exec_agent.skills.registry.counts import RunCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillOutcome:
    """The result of a run."""

    name: str
    version: int
    level: str
    """The strength of the evidence for this version."""
    result: Any
    error: str
    """One line; empty if it succeeded."""
    kind: str
    """Of its exception, or of its end; ``security`` if it attempted an operation that no skill has a reason for."""
    denied: str
    """The operation that the sandbox refused, if any; for a person, never for a model."""
    logs: str
    """The skill's output."""
    seconds: float
    files: tuple[str, ...] = ()
    """Files that were copied out, by their paths in the skill's data folder."""
    left: tuple[str, ...] = ()
    """Files that were not, and why."""
    declared: tuple[str, ...] = ()
    """Rules of its policy that a cloud provider declares and no canary proved."""
    reached: tuple[str, ...] = ()
    """The hosts that it requested from the proxy, each with the status: 200 is a connection, 403 a refusal."""
    counts: RunCounts = field(default_factory=RunCounts)
    quarantined: bool = False
    """Whether this run caused a quarantine."""

    @property
    def ok(self) -> bool:
        """Whether there is a result."""
        return not self.error
