"""What a model's next request consists of, in tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec_agent.memory.prompt import HEADINGS as MEMORY_HEADINGS
from hermes_exec_agent.models.messages import Message
from hermes_exec_agent.models.protocol import estimate_tokens, estimate_tool_tokens
from hermes_exec_agent.runtime.compaction import SUMMARY
from hermes_exec_agent.runtime.system_prompt import system_prompt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hermes_exec_agent.models.protocol import ToolSpec

_NAMES = {"user": "requests and notices", "assistant": "replies and calls", "tool": "results of tools"}


@dataclass(frozen=True, slots=True)
class ContextUse:
    """The parts of a request, each with its tokens, about, in the order in which the model reads them."""

    parts: Mapping[str, int]
    window: int
    """Tokens that a request and its reply may have together."""

    @property
    def used(self) -> int:
        """The tokens of all parts."""
        return sum(self.parts.values())

    def share_of(self, tokens: int) -> float:
        """Return the share of the window that ``tokens`` take."""
        return tokens / self.window


def measure_context(
    messages: Sequence[Message], tools: Sequence[ToolSpec], *, place: str, instructions: str, window: int, scale: float
) -> ContextUse:
    """Measure a request.

    Args:
        messages: the conversation, the system's message first.
        tools: the tools of the model.
        place: the target.
        instructions: the end of the system message.
        window: of the model.
        scale: the ratio of the endpoint's count to the estimate.
    """
    parts: dict[str, int] = {}

    def add(name: str, tokens: int) -> None:
        parts[name] = parts.get(name, 0) + tokens

    for message in messages[:1]:
        for name, text in _split_system(message.content, place, instructions.strip()):
            add(name, estimate_tokens(Message("system", text)))
    add("descriptions of tools", estimate_tool_tokens(tools))
    for message in messages[1:]:
        is_summary = message.role == "user" and message.content.startswith(SUMMARY)
        add("summary of earlier parts" if is_summary else _NAMES[message.role], estimate_tokens(message))
    return ContextUse({name: round(tokens * scale) for name, tokens in parts.items()}, window)


def _split_system(content: str, place: str, instructions: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a system message; one of an earlier version is a single part."""
    own = system_prompt(place)
    if not content.startswith(own):
        yield "system message", content
        return
    yield "system message", own
    rest = content[len(own) :]
    if has_instructions := bool(instructions) and rest.endswith(instructions):
        rest = rest[: -len(instructions)]
    found = [at for heading in MEMORY_HEADINGS.values() if (at := rest.find(heading)) >= 0]
    project, remembered = (rest[: min(found)], rest[min(found) :]) if found else (rest, "")
    if project.strip():
        yield "project's files", project
    if remembered.strip():
        yield "memory", remembered
    if has_instructions:
        yield "instructions", instructions
