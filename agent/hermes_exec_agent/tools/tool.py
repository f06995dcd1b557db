"""What a tool is, and what it is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec import Terminal
    from hermes_exec_agent.models.protocol import ToolSpec
    from hermes_exec_agent.tools.envelope import Envelope


class Person(Protocol):
    """Whom the agent works for. Where nobody is there, both raise `Unsupported`: nothing is done in their name."""

    async def approve(self, tool: str, summary: str) -> bool:
        """Whether this may be done; ``summary`` is a line, safe to print."""
        ...

    async def clarify(self, question: str, choices: Sequence[str]) -> str:
        """Their answer, one of the choices or in their own words."""
        ...


@dataclass(slots=True)
class Context:
    """What a conversation gives to each of its tools."""

    terminal: Terminal
    """The conversation's one terminal; there is no other, and none is opened in its stead."""
    place: str
    """Its target, as the person wrote it."""
    person: Person
    conversation: str
    """The id of the conversation in the event log."""


class Tool(Protocol):
    """Something that a model can ask for."""

    @property
    def spec(self) -> ToolSpec:
        """As a model sees it."""
        ...

    @property
    def changes(self) -> bool:
        """Whether a call can change anything. Calls of tools that change nothing run side by side."""
        ...

    async def call(self, arguments: dict[str, Any], context: Context) -> Envelope:
        """Do it. ``arguments`` were checked against the schema. A cancelled call leaves nothing running.

        A `HermesError` of the place becomes an envelope with a `Failure`; it is never shown as a command's output.
        """
        ...
