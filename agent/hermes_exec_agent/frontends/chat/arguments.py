"""The arguments of a chat."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class ChatArguments:
    """The arguments of ``chat``, as written."""

    on: str | None = None
    """The target."""
    query: str | None = None
    """One question, instead of a conversation."""
    model: str | None = None
    """The name of a model of the configuration."""
    resume: str | None = None
    """The conversation to continue: its id or the beginning of it, or ``last``."""
    replay: str | None = None
    """A script instead of a model."""
    approve: str = "ask"
    """The approval of tools that change something: ask, allow or deny."""
    budget: int | None = None
    """The limit of replies of the model in one turn."""
    most_cost: float | None = None
    """The limit of US dollars of one turn."""
    case: list[str] = field(default_factory=list[str])
    """Expected results of a skill that the agent writes, as JSON."""
    json: bool = False
    """Whether the answer to ``query`` is one JSON document."""
    quiet: bool = False
    improve: bool = True
    """Whether a skill that fails in use is repaired."""
    continue_newest: bool = False
    """Whether to continue the newest conversation."""
    fork: bool = False
    """Whether to start a new conversation from the record of that one."""
    files: list[str] = field(default_factory=list[str])
    """Local files to send with ``query``; ``-`` is standard input."""
    person: str | None = None
    """The person that the conversation belongs to."""
    guest: bool = False
    """Whether that person is a guest."""
    check: str = ""
    """A command whose exit code is evidence for the outcome of each task; empty without one."""
