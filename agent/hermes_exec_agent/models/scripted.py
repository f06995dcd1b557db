"""A model whose replies were written beforehand: for tests of what stands on models, and for replays.

Nobody thinks here, and ``scripted`` says so in every record. Public, so that people can test their own tools:

    model = ScriptedModel([ask(("terminal", {"command": "ls"})), say("There are two files.")])
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from hermes_exec.config.paths import read_regular, shown
from hermes_exec.errors import ConfigError
from hermes_exec_agent.errors import ModelError, ScriptEnded
from hermes_exec_agent.messages import Message, ToolCall
from hermes_exec_agent.models.protocol import Reply, Text
from hermes_exec_agent.models.tokens import estimated_usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from hermes_exec_agent.models.protocol import Item, ToolSpec

Line: TypeAlias = "str | Reply | ModelError"
"""What a script says at one point."""
Written: TypeAlias = "Line | Callable[[Sequence[Message], Sequence[ToolSpec]], Line]"
"""The same, or what decides it from the conversation so far."""

_PIECES = re.compile(r"\s*\S+\s*")
_call_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Request:
    """What a scripted model was asked."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    max_tokens: int | None
    schema: dict[str, Any] | None


def say(text: str) -> Reply:
    """A reply of text alone."""
    return Reply(Message("assistant", text), "stop")


def ask(*calls: tuple[str, dict[str, Any] | str], text: str = "") -> Reply:
    """A reply that asks for tools, each by its name and its arguments; a string stands as the model wrote it."""
    asked = tuple(
        ToolCall(f"call_{next(_call_numbers)}", name, given if isinstance(given, str) else json.dumps(given))
        for name, given in calls
    )
    return Reply(Message("assistant", text, asked), "tool_calls")


class ScriptedModel:
    """Answers with ``replies``, one after another."""

    scripted = True

    def __init__(self, replies: Iterable[Written], *, name: str = "scripted", window: int = 128_000) -> None:
        """``name`` is what is recorded; ``window`` is in tokens."""
        self.name = name
        self.window = window
        self.requests: list[Request] = []
        """What it was asked so far."""
        self._replies = list(replies)

    @classmethod
    def from_file(cls, path: Path) -> ScriptedModel:
        """Read a script: a JSON object a line, with ``content`` and ``tool_calls`` (``name``, ``arguments``).

        Raises:
            ConfigError: it is no such file; names the line.
        """
        replies: list[Written] = []
        for number, line in enumerate(read_regular(path).decode("utf-8", "replace").splitlines(), 1):
            if line.strip():
                try:
                    replies.append(_parsed(json.loads(line)))
                except (ValueError, TypeError, KeyError, RecursionError):
                    raise ConfigError(
                        f"{shown(path)}: line {number} is no reply",
                        remedy='{"content": "…", "tool_calls": [{"name": "terminal", "arguments": {"command": "ls"}}]}',
                    ) from None
        return cls(replies, name=f"scripted: {shown(path.name)}")

    @property
    def left(self) -> int:
        """Replies that nobody asked for yet."""
        return len(self._replies) - len(self.requests)

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        *,
        max_tokens: int | None = None,
        schema: dict[str, Any] | None = None,
    ) -> AsyncGenerator[Item]:
        """The next reply, its text word by word.

        Raises:
            ScriptEnded: there is none left.
            ModelError: the script says so.
        """
        self.requests.append(Request(tuple(messages), tuple(tools), max_tokens, schema))
        if self.left < 0:
            raise ScriptEnded(f"{self.name}: asked {len(self.requests)} times, and has {len(self._replies)} replies")
        written = self._replies[len(self.requests) - 1]
        said = written(messages, tools) if callable(written) else written
        if isinstance(said, ModelError):
            raise said
        reply = say(said) if isinstance(said, str) else said
        for piece in _PIECES.findall(reply.message.content):
            yield Text(piece)
        usage = reply.usage if reply.usage.prompt else estimated_usage(messages, tools, reply.message)
        yield replace(reply, model=self.name, usage=usage)

    async def close(self) -> None:
        """Nothing is held."""


def _parsed(line: object) -> Reply:
    if not isinstance(line, dict):
        raise TypeError
    told = cast("dict[str, object]", line)
    content = told.get("content") or ""
    calls = cast("list[dict[str, object]]", told.get("tool_calls") or [])
    if not isinstance(content, str) or not (content or calls):
        raise TypeError
    asked: list[tuple[str, dict[str, Any] | str]] = []
    for call in calls:
        given = call["arguments"]
        if not isinstance(given, dict | str):
            raise TypeError
        asked.append((str(call["name"]), cast("dict[str, Any] | str", given)))
    return ask(*asked, text=content) if asked else say(content)
