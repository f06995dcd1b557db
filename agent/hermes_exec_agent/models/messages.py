"""Messages of a conversation, in the form of OpenAI's chat completions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from hermes_exec_agent.models.images import Image

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's request to call a tool."""

    id: str
    """Identifies the call and its result in a conversation."""
    name: str
    arguments: str
    """JSON as the model wrote it, which may be malformed; the tool's caller validates it."""
    extras: dict[str, Any] = field(default_factory=dict[str, Any], hash=False)
    """Additional fields of the endpoint, unchanged; see `models.reply_extras`."""
    given_id: str = field(default="", compare=False)
    """The endpoint's id, if another call of the conversation already had it."""

    def to_wire(self) -> dict[str, Any]:
        """Return the call in the protocol's form."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    """Of an assistant's message."""
    tool_call_id: str = ""
    """Of a tool's message: the call that it answers."""
    extras: dict[str, Any] = field(default_factory=dict[str, Any], hash=False)
    """Additional fields of the endpoint, unchanged, mostly its reasoning. They are sent to that endpoint alone."""
    origin: str = field(default="", compare=False)
    """The endpoint that wrote it (`Endpoint.origin`); empty for other messages and changed ones."""
    images: tuple[Image, ...] = ()
    """Of a user's message."""

    def to_wire(self) -> dict[str, Any]:
        """Return the message in the protocol's form, without `extras`."""
        fields: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.images:
            text = {"type": "text", "text": self.content}
            fields["content"] = [text, *(each.to_wire() for each in self.images)]
        if self.tool_calls:
            fields["tool_calls"] = [call.to_wire() for call in self.tool_calls]
        if self.role == "tool":
            fields["tool_call_id"] = self.tool_call_id
        return fields
