"""What a chat is started with."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class ChatArguments:
    """The words of one ``chat``, as they were said."""

    on: str | None = None
    """The place."""
    query: str | None = None
    """One question, instead of a conversation."""
    model: str | None = None
    """The name of a model of the configuration."""
    resume: str | None = None
    """The conversation to go on with: its id or the beginning of it, or ``last``."""
    replay: str | None = None
    """A script instead of a model."""
    approve: str = "ask"
    """Whether tools that change something ask first: ask, allow or deny."""
    budget: int | None = None
    """How many replies of the model one turn may take."""
    case: list[str] = field(default_factory=list[str])
    """What a skill that is written meanwhile has to hold, as JSON."""
    json: bool = False
    """Whether the answer to ``query`` is one JSON document."""
    quiet: bool = False
    improve: bool = True
    """Whether a skill that fails in use is improved."""
    continue_newest: bool = False
    """Whether to go on with the newest conversation."""
    fork: bool = False
    """Whether to begin a branch of that conversation instead."""
    files: list[str] = field(default_factory=list[str])
    """What is sent along with ``query``: files of this machine, ``-`` for standard input."""
