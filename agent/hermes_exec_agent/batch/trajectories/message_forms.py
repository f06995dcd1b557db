"""Trajectories as messages: OpenAI's form for fine-tuning, and the form of ShareGPT with thoughts and calls as text."""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Any

from hermes_exec_agent.models.protocol import read_thought

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hermes_exec_agent.batch.trajectories.reading import SegmentMessage, Trajectory
    from hermes_exec_agent.models.messages import Message

_SPEAKERS = {"system": "system", "user": "human", "assistant": "gpt", "tool": "tool"}
_TOOLS = (
    "\n\nThe functions that you can call, as JSON schemas:\n<tools>\n{}\n</tools>\nA call is a JSON object with name "
    "and arguments in <tool_call></tool_call>; its result follows in <tool_response></tool_response>."
)


def to_openai(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    """Yield a row of messages for each segment.

    An assistant's message has the weight 0 if the model did not write it, or if it was in the segment before. The tools
    are JSON text, as their schemas have no common columns.
    """
    for number, segment in enumerate(trajectory.conversation.list_segments(), 1):
        yield {
            "messages": [_to_wire(each) for each in segment],
            "tools": _to_json(trajectory.conversation.schemas),
            **trajectory.describe(),
            "segment": number,
        }


def _to_wire(each: SegmentMessage) -> dict[str, Any]:
    wire = each.message.to_wire()
    if each.message.role == "assistant":
        wire["weight"] = int(each.event is not None)
        if thought := read_thought(each.message.extras):
            wire["reasoning_content"] = thought
    return wire


def to_sharegpt(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    """Yield a row of turns for each segment; results that follow each other are one turn."""
    tools = _to_json(trajectory.conversation.schemas)
    for number, segment in enumerate(trajectory.conversation.list_segments(), 1):
        messages = [each.message for each in segment]
        turns: list[dict[str, str]] = []
        for role, group in groupby(messages, lambda message: message.role):
            texts = [_to_text(message, messages) for message in group]
            if role == "system":
                texts[0] += _TOOLS.format(tools)
            joined = ["\n".join(texts)] if role == "tool" else texts
            turns += [{"from": _SPEAKERS[role], "value": text} for text in joined]
        yield {
            "conversations": turns,
            "tools": tools,
            **trajectory.describe(),
            "segment": number,
            "completed": trajectory.end == "answered",
        }


def _to_text(message: Message, messages: Sequence[Message]) -> str:
    if message.role == "tool":
        names = {call.id: call.name for each in messages for call in each.tool_calls}
        record = {
            "tool_call_id": message.tool_call_id,
            "name": names.get(message.tool_call_id, ""),
            "content": message.content,
        }
        return f"<tool_response>\n{_to_json(record)}\n</tool_response>"
    if message.role != "assistant":
        return message.content
    parts = [f"<think>\n{read_thought(message.extras)}\n</think>", message.content]
    for call in message.tool_calls:
        text = _to_json({"name": call.name, "arguments": parse_arguments(call.arguments) or call.arguments})
        parts.append(f"<tool_call>\n{text}\n</tool_call>")
    return "\n".join(part for part in parts if part)


def parse_arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a call; empty if they are not a JSON object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]  JSON


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
