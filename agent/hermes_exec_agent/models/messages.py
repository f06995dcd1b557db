"""A conversation as models read it: messages in the form of OpenAI's chat completions, which every endpoint speaks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What a model asks to be done."""

    id: str
    """Ties the result to it; unique in a conversation."""
    name: str
    arguments: str
    """JSON as the model wrote it, which may be malformed: whoever runs the tool checks it."""
    extras: dict[str, Any] = field(default_factory=dict[str, Any], hash=False)
    """Fields that the endpoint sent beside these, as they came; see `models.extras`."""
    given_id: str = field(default="", compare=False)
    """The endpoint's own id, where another call of the conversation had it before."""

    def wire(self) -> dict[str, Any]:
        """In the form of the protocol."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a conversation."""

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    """Of an assistant's message."""
    tool_call_id: str = ""
    """Of a tool's message: which call it answers."""
    extras: dict[str, Any] = field(default_factory=dict[str, Any], hash=False)
    """Fields that the endpoint sent beside these, as they came: its reasoning, mostly. Only that endpoint gets them
    back."""
    origin: str = field(default="", compare=False)
    """Which endpoint gave it (`Endpoint.origin`); empty for a message that no endpoint gave, or that was changed."""

    def wire(self) -> dict[str, Any]:
        """In the form of the protocol, without `extras`."""
        fields: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            fields["tool_calls"] = [call.wire() for call in self.tool_calls]
        if self.role == "tool":
            fields["tool_call_id"] = self.tool_call_id
        return fields
