"""Messages, tools and replies in the form of ``pydantic-ai-slim``, which every vendor's API is asked through.

The parts of a reply are kept as ``reasoning_details`` in the extras of its message, in their order: reasoning with its
text and signature, and for text and calls only what the message itself has not. They restore the reply unchanged.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from typing import TYPE_CHECKING, Any, cast

from hermes_exec_agent.models.assembly import LONGEST, ReplyTooLong
from hermes_exec_agent.models.messages import Message, ToolCall
from hermes_exec_agent.models.protocol import Text, Thought, Usage
from hermes_exec_agent.models.reply_extras import ExtrasBudget, repair_surrogates
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic_ai.messages import ModelMessage, ModelResponse, ModelResponsePart, ModelResponseStreamEvent
    from pydantic_ai.models import ModelRequestParameters

    from hermes_exec_agent.models.protocol import Finish, ToolSpec

PARTS = "reasoning_details"
"""The field of a message's extras; readers of it take the reasoning's text from ``text``."""
_KEPT = ("id", "provider_name", "provider_details")
_NAME = 64
"""Characters of a tool's name, for every vendor."""
_DESCRIPTION = 2000
"""Characters of a tool's description."""


class MalformedReply(ValueError):
    """A reply that its vendor marks as an error, or that has no content."""


def to_vendor_tools(tools: Sequence[ToolSpec], schema: dict[str, Any] | None) -> ModelRequestParameters:
    """Return the tools of a request, and the schema of the reply's text."""
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition

    functions = [
        ToolDefinition(
            name=tool.name,
            parameters_json_schema=tool.parameters,
            description=flatten(tool.description, _DESCRIPTION),
            strict=False,
        )
        for tool in tools
    ]
    if schema is None:
        return ModelRequestParameters(function_tools=functions)
    output = OutputObjectDefinition(json_schema=schema, name="reply", strict=True)
    return ModelRequestParameters(function_tools=functions, output_mode="native", output_object=output)


def to_vendor_messages(messages: Sequence[Message], *, origin: str, vendor: str) -> list[ModelMessage]:
    """Return the messages for the endpoint ``origin`` of ``vendor``; its own ones have their reasoning."""
    from pydantic_ai.messages import ModelRequest, SystemPromptPart, ToolReturnPart, UserPromptPart

    found: list[ModelMessage] = []
    ids: dict[str, str] = {}
    names: dict[str, str] = {}
    for message in messages:
        if message.role == "assistant":
            own = bool(origin) and message.origin == origin
            ids = _find_ids(message) if own else {call.id: _to_plain_id(call.id) for call in message.tool_calls}
            names = {call.id: call.name if own else _to_plain_name(call.name) for call in message.tool_calls}
            found.append(_to_response(message, own, ids, names, vendor))
            continue
        part: Any
        if message.role == "system":
            part = SystemPromptPart(message.content)
        elif message.role == "tool":
            id = message.tool_call_id
            part = ToolReturnPart(names.get(id, "tool"), message.content, ids.get(id, id))
        else:
            part = UserPromptPart(message.content)
        if found and isinstance(found[-1], ModelRequest):
            found[-1] = ModelRequest([*found[-1].parts, part])
        else:
            found.append(ModelRequest([part]))
    return found


def _find_ids(message: Message) -> dict[str, str]:
    """Return the endpoint's own id of each call that was renamed here."""
    given = {call.id: call.given_id or call.id for call in message.tool_calls}
    return given if len(set(given.values())) == len(given) else {}


def _to_plain_id(id: str) -> str:
    """Return an id that every vendor takes, for one of another provider."""
    return f"call_{hashlib.sha256(id.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def _to_plain_name(name: str) -> str:
    """Return a tool's name that every vendor takes, for one of another provider's calls."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:_NAME] or "tool"


def _to_response(
    message: Message,
    own: bool,  # noqa: FBT001  its shape
    ids: Mapping[str, str],
    names: Mapping[str, str],
    vendor: str,
) -> ModelMessage:
    from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart

    def create_call(call: ToolCall, kept: dict[str, Any]) -> ToolCallPart:
        return ToolCallPart(names[call.id], _read_arguments(call.arguments), ids.get(call.id, call.id), **kept)

    parts: list[ModelResponsePart] = []
    used, calls = 0, list(message.tool_calls)
    for entry in _read_entries(message) if own else ():
        kept = {name: entry[name] for name in _KEPT if name in entry}
        match entry.get("type"):
            case "thinking":
                parts.append(ThinkingPart(str(entry.get("text", "")), signature=entry.get("signature"), **kept))
            case "text":
                length = int(entry.get("length", 0))
                parts.append(TextPart(message.content[used : used + length], **kept))
                used += length
            case "call" if calls:
                parts.append(create_call(calls.pop(0), kept))
            case _:
                pass
    if rest := message.content[used:]:
        parts.append(TextPart(rest))
    parts += [create_call(call, {}) for call in calls]
    return ModelResponse(parts or [TextPart("(nothing)")], provider_name=vendor if own else None)


def _read_entries(message: Message) -> list[dict[str, Any]]:
    entries: Any = message.extras.get(PARTS)
    if not isinstance(entries, list):
        return []
    return [cast("dict[str, Any]", each) for each in cast("list[object]", entries) if isinstance(each, dict)]


def _read_arguments(text: str) -> dict[str, Any]:
    """Return the arguments of an earlier call as an object, as every vendor wants one."""
    try:
        value: Any = json.loads(text, strict=False) if text.strip() else {}
    except (ValueError, RecursionError):
        value = None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"arguments": text}


class VendorAssembler:
    """A reply whose events are arriving."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.model = ""
        self.request_id = ""
        self.has_begun = False
        """Whether an event has arrived."""
        self.is_finished = False
        """Whether the vendor sent a finish reason."""
        self._size = 0
        self._finish: Finish = "stop"
        self._text = ""
        self._calls: tuple[ToolCall, ...] = ()
        self._extras: dict[str, Any] = {}

    def add(self, event: ModelResponseStreamEvent) -> list[Text | Thought]:
        """Add an event; return the text and reasoning in it.

        Raises:
            ReplyTooLong: the reply is too long.
        """
        from pydantic_ai.messages import (
            PartDeltaEvent,
            PartStartEvent,
            TextPart,
            TextPartDelta,
            ThinkingPart,
            ThinkingPartDelta,
            ToolCallPart,
            ToolCallPartDelta,
        )  # fmt: skip

        self.has_begun = True
        match event:
            case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                self._grow(len(text))
                return [Text(text)] if text else []
            case (
                PartStartEvent(part=ThinkingPart(content=text))
                | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text))
            ):
                self._grow(len(text or ""))
                return [Thought(text)] if text else []
            case PartStartEvent(part=ToolCallPart(args=arguments)):
                self._grow(len(arguments or ""))
            case PartDeltaEvent(delta=ToolCallPartDelta(args_delta=arguments)):
                self._grow(len(arguments or ""))
            case _:
                pass
        return []

    def _grow(self, by: int) -> None:
        self._size += by
        if self._size > LONGEST:
            raise ReplyTooLong

    def add_whole(self, reply: ModelResponse) -> list[Text | Thought]:
        """Add a reply that was not streamed; return its text and reasoning.

        Raises:
            MalformedReply, ExtrasTooLong, ReplyTooLong: see `end`.
        """
        from pydantic_ai.messages import TextPart, ThinkingPart

        self.end(reply)
        if not self.is_finished:
            raise MalformedReply("it has no finish reason")
        pieces: list[Text | Thought] = []
        for part in reply.parts:
            if isinstance(part, TextPart | ThinkingPart) and part.content:
                self._grow(len(part.content))
                pieces.append(Text(part.content) if isinstance(part, TextPart) else Thought(part.content))
        return pieces

    def end(self, reply: ModelResponse) -> None:
        """Take the complete reply.

        Raises:
            MalformedReply: its vendor marks it as an error.
            ExtrasTooLong: its reasoning exceeds its limit.
        """
        self.model = reply.model_name or ""
        self.request_id = reply.provider_response_id or ""
        self.is_finished = reply.finish_reason is not None
        if reply.finish_reason == "error":
            raise MalformedReply("the vendor marks it as an error")
        self._read_parts(reply.parts)
        if reply.finish_reason in ("length", "content_filter"):
            self._finish = reply.finish_reason
        else:
            self._finish = "tool_calls" if self._calls else "stop"
        usage = reply.usage
        if usage.input_tokens or usage.output_tokens:
            self.usage = Usage(
                prompt=usage.input_tokens,
                cached=usage.cache_read_tokens,
                completion=usage.output_tokens,
                reasoning=usage.output_reasoning_tokens,
            )

    def _read_parts(self, parts: Sequence[ModelResponsePart]) -> None:
        from pydantic_ai.messages import TextPart, ThinkingPart, ToolCallPart

        texts: list[str] = []
        calls: list[ToolCall] = []
        entries: list[dict[str, Any]] = []
        for part in parts:
            if isinstance(part, TextPart):
                texts.append(text := repair_surrogates(part.content))
                entries.append({"type": "text", "length": len(text), **_read_own_fields(part)})
            elif isinstance(part, ThinkingPart):
                entry = {"type": "thinking", "text": repair_surrogates(part.content), **_read_fields(part)}
                entries.append(entry | ({"signature": part.signature} if part.signature else {}))
            elif isinstance(part, ToolCallPart):
                arguments = repair_surrogates(part.args if isinstance(part.args, str) else json.dumps(part.args or {}))
                id = part.tool_call_id or f"call_{secrets.token_hex(8)}"
                calls.append(ToolCall(id, part.tool_name, arguments or "{}"))
                entries.append({"type": "call", **_read_own_fields(part)})
        self._text, self._calls = "".join(texts), tuple(calls)
        # Without reasoning and signatures, the message has everything.
        if any(entry["type"] == "thinking" or set(entry) - {"type", "length"} for entry in entries):
            ExtrasBudget().take(entries)
            self._extras = {PARTS: entries}

    def message(self, origin: str = "") -> Message:
        """Return the reply as a message of the endpoint ``origin``."""
        return Message("assistant", self._text, self._calls, extras=self._extras, origin=origin)

    def finish_reason(self) -> Finish:
        """Return the finish reason."""
        return self._finish


def _read_own_fields(part: Any) -> dict[str, Any]:
    """Return the fields of a part that only its vendor reads; empty if these are its vendor's name alone."""
    found = _read_fields(part)
    return {} if set(found) == {"provider_name"} else found


def _read_fields(part: Any) -> dict[str, Any]:
    """Return the fields of a part that restore it, as JSON."""
    from pydantic_core import to_jsonable_python

    found = {name: getattr(part, name) for name in _KEPT if getattr(part, name)}
    jsonable: dict[str, Any] = to_jsonable_python(found, bytes_mode="base64")
    return jsonable
