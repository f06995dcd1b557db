"""A model whose replies were written beforehand: for tests of what stands on models, and for replays.

Nobody thinks here, and ``scripted`` says so in every record. Public, so that people can test their own tools:

    model = ScriptedModel([ask(("terminal", {"command": "ls"})), say("There are two files.")])
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from hermes_exec.config.paths import read_regular, shown
from hermes_exec.errors import ConfigError
from hermes_exec_agent.errors import ModelError, ScriptEnded
from hermes_exec_agent.models.messages import Message, ToolCall
from hermes_exec_agent.models.protocol import Reply, Text, estimated_usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from hermes_exec_agent.models.protocol import Item, ToolChoice, ToolSpec

Line: TypeAlias = "str | Reply | ModelError"
"""What a script says at one point."""
Written: TypeAlias = "Line | Callable[[Sequence[Message], Sequence[ToolSpec]], Line]"
"""The same, or what decides it from the conversation so far."""

Condition: TypeAlias = Literal["denied", "unavailable", "failed"]
"""How a call ended: it was not allowed; nothing ran as the place cannot be reached; it did not succeed, for any reason
with these two among them."""

_FORMS = (
    '{"user": "…"} or {"content": "…", "tool_calls": [{"name": "terminal", "arguments": {"command": "ls"}}]}, '
    'with "if": "denied", "unavailable" or "failed" where another one follows'
)
_PIECES = re.compile(r"\s*\S+\s*")
_call_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Request:
    """What a scripted model was asked."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    max_tokens: int | None
    schema: dict[str, Any] | None
    tool_choice: ToolChoice | None = None


def say(text: str) -> Reply:
    """A reply of text alone."""
    return Reply(Message("assistant", text), "stop")


def ask(*calls: tuple[str, dict[str, Any] | str], text: str = "") -> Reply:
    """A reply that asks for tools, each by its name and its arguments; a string stands as the model wrote it."""
    tool_calls = tuple(
        ToolCall(
            f"call_{next(_call_numbers)}", name, arguments if isinstance(arguments, str) else json.dumps(arguments)
        )
        for name, arguments in calls
    )
    return Reply(Message("assistant", text, tool_calls), "tool_calls")


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
        """The replies of a script; see `read_script`.

        Raises:
            ConfigError: it is no such file; names the line.
        """
        _, replies = read_script(path)
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
        tool_choice: ToolChoice | None = None,
    ) -> AsyncGenerator[Item]:
        """The next reply, its text word by word.

        Raises:
            ScriptEnded: there is none left.
            ModelError: the script says so.
        """
        self.requests.append(Request(tuple(messages), tuple(tools), max_tokens, schema, tool_choice))
        if self.left < 0:
            raise ScriptEnded(f"{self.name}: asked {len(self.requests)} times, and has {len(self._replies)} replies")
        written = self._replies[len(self.requests) - 1]
        entry = written(messages, tools) if callable(written) else written
        if isinstance(entry, ModelError):
            raise entry
        reply = say(entry) if isinstance(entry, str) else entry
        for piece in _PIECES.findall(reply.message.content):
            yield Text(piece)
        usage = reply.usage if reply.usage.prompt else estimated_usage(messages, tools, reply.message)
        yield replace(reply, model=self.name, usage=usage)

    async def close(self) -> None:
        """Nothing is held."""


def read_script(path: Path) -> tuple[list[str], list[Written]]:
    """Read a script, a JSON object a line; gives what the person says in it, and the replies.

    A line has ``user``, or ``content`` and ``tool_calls`` (``name``, ``arguments``). Lines that also have ``if`` are
    alternatives to the next reply without it; see `branch`.

    Raises:
        ConfigError: it is no such file; names the line.
    """
    requests: list[str] = []
    replies: list[Written] = []
    alternatives: list[tuple[Condition, Reply]] = []
    number = 0
    for number, line in enumerate(read_regular(path).decode("utf-8", "replace").splitlines(), 1):
        if not line.strip():
            continue
        try:
            fields = _table(json.loads(line))
            if "user" in fields:
                requests.append(_text(fields["user"]))
            elif "if" in fields:
                alternatives.append((_condition(fields["if"]), _parsed(fields)))
                continue
            else:
                replies.append(branch(*alternatives, otherwise=_parsed(fields)) if alternatives else _parsed(fields))
                alternatives = []
        except (ValueError, TypeError, KeyError, RecursionError):
            raise ConfigError(f"{shown(path)}: line {number} is no reply and no request", remedy=_FORMS) from None
        if alternatives:
            break
    if alternatives:
        what = f'{shown(path)}: line {number}: replies with "if" have none after them that holds otherwise'
        raise ConfigError(what, remedy='a reply without "if" as the last of them')
    return requests, replies


def branch(*alternatives: tuple[Condition, Reply], otherwise: Reply) -> Written:
    """The first reply whose condition holds for one of the calls that the reply before asked for, or ``otherwise``."""

    def choose(messages: Sequence[Message], _: Sequence[ToolSpec]) -> Reply:
        results = [_result(message) for message in takewhile(lambda each: each.role == "tool", reversed(messages))]
        return next((reply for condition, reply in alternatives if any(map(_HOLDS[condition], results))), otherwise)

    return choose


def _result(message: Message) -> dict[str, Any]:
    """The envelope in a tool's message; what is none is a call that did not end by itself."""
    try:
        result, _ = json.JSONDecoder().raw_decode(message.content)  # a notice of ours may follow
        return _table(result)
    except (ValueError, TypeError, RecursionError):
        return {"ok": False}


def _error(result: dict[str, Any]) -> dict[str, Any]:
    error = result.get("error")
    return cast("dict[str, Any]", error) if isinstance(error, dict) else {}


_HOLDS: dict[Condition, Callable[[dict[str, Any]], bool]] = {
    "denied": lambda result: _error(result).get("type") == "denied",
    "unavailable": lambda result: bool(_error(result).get("retryable")) or _error(result).get("type") == "place_gone",
    "failed": lambda result: not result.get("ok"),
}


def _condition(value: object) -> Condition:
    for condition in _HOLDS:
        if condition == value:
            return condition
    raise ValueError


def _table(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError
    return cast("dict[str, Any]", value)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError
    return value


def _parsed(fields: dict[str, Any]) -> Reply:
    content = fields.get("content") or ""
    calls = cast("list[dict[str, object]]", fields.get("tool_calls") or [])
    if not isinstance(content, str) or not (content or calls):
        raise TypeError
    requests: list[tuple[str, dict[str, Any] | str]] = []
    for call in calls:
        arguments = call["arguments"]
        if not isinstance(arguments, dict | str):
            raise TypeError
        requests.append((str(call["name"]), cast("dict[str, Any] | str", arguments)))
    return ask(*requests, text=content) if requests else say(content)
