"""A model whose replies are written beforehand, for tests and replays.

``scripted`` marks its replies in every record. It is public, so that people can test their own tools:

    model = ScriptedModel([ask(("terminal", {"command": "ls"})), say("There are two files.")])
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from hermes_exec.config.paths import read_regular, to_printable
from hermes_exec.errors import ConfigError
from hermes_exec_agent.errors import ModelError, ScriptEnded
from hermes_exec_agent.models.messages import Message, ToolCall
from hermes_exec_agent.models.protocol import Reply, Text, estimate_usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from hermes_exec_agent.models.protocol import Item, ToolChoice, ToolSpec

Line: TypeAlias = "str | Reply | ModelError"
"""One reply of a script."""
ScriptEntry: TypeAlias = "Line | Callable[[Sequence[Message], Sequence[ToolSpec]], Line]"
"""The same, or a function that chooses it from the conversation."""

Condition: TypeAlias = Literal["denied", "unavailable", "failed"]
"""How a call ended: denied; unavailable, because the target cannot be reached and nothing ran; or failed for any
reason."""

_FORMS = (
    '{"user": "…"} or {"content": "…", "tool_calls": [{"name": "terminal", "arguments": {"command": "ls"}}]}, '
    'with "if": "denied", "unavailable" or "failed" where another one follows'
)
_PIECES = re.compile(r"\s*\S+\s*")
_call_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a scripted model."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    max_tokens: int | None
    schema: dict[str, Any] | None
    tool_choice: ToolChoice | None = None


def say(text: str) -> Reply:
    """Return a reply of text alone."""
    return Reply(Message("assistant", text), "stop")


def ask(*calls: tuple[str, dict[str, Any] | str], text: str = "") -> Reply:
    """Return a reply with tool calls, each given by name and arguments; a string is used unchanged."""
    tool_calls = tuple(
        ToolCall(
            f"call_{next(_call_numbers)}", name, arguments if isinstance(arguments, str) else json.dumps(arguments)
        )
        for name, arguments in calls
    )
    return Reply(Message("assistant", text, tool_calls), "tool_calls")


class ScriptedModel:
    """Returns ``replies``, one after another."""

    scripted = True

    def __init__(self, replies: Iterable[ScriptEntry], *, name: str = "scripted", window: int = 128_000) -> None:
        """``name`` is recorded; ``window`` is in tokens."""
        self.name = name
        self.window = window
        self.requests: list[Request] = []
        """The requests so far."""
        self._replies = list(replies)

    @classmethod
    def from_file(cls, path: Path) -> ScriptedModel:
        """Read the replies of a script; see `read_script`.

        Raises:
            ConfigError: the file is not a script; the message names the line.
        """
        _, replies = read_script(path)
        return cls(replies, name=f"scripted: {to_printable(path.name)}")

    @property
    def left(self) -> int:
        """The number of replies left."""
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
        """Stream the next reply, its text word by word.

        Raises:
            ScriptEnded: no reply is left.
            ModelError: the script contains it.
        """
        self.requests.append(Request(tuple(messages), tuple(tools), max_tokens, schema, tool_choice))
        if self.left < 0:
            raise ScriptEnded(
                f"{self.name}: it ends before request {len(self.requests)}; replies: {len(self._replies)}"
            )
        written = self._replies[len(self.requests) - 1]
        entry = written(messages, tools) if callable(written) else written
        if isinstance(entry, ModelError):
            raise entry
        reply = say(entry) if isinstance(entry, str) else entry
        for piece in _PIECES.findall(reply.message.content):
            yield Text(piece)
        usage = reply.usage if reply.usage.prompt else estimate_usage(messages, tools, reply.message)
        yield replace(reply, model=self.name, usage=usage)

    async def close(self) -> None:
        """Do nothing."""


def read_script(path: Path) -> tuple[list[str], list[ScriptEntry]]:
    """Read a script of one JSON object a line; return the person's requests in it, and the replies.

    A line has ``user``, or ``content`` and ``tool_calls`` (``name``, ``arguments``). Lines that also have ``if`` are
    alternatives to the next reply without it; see `branch`.

    Raises:
        ConfigError: the file is not a script; the message names the line.
    """
    requests: list[str] = []
    replies: list[ScriptEntry] = []
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
                alternatives.append((_condition(fields["if"]), _parse_reply(fields)))
                continue
            else:
                replies.append(
                    branch(*alternatives, otherwise=_parse_reply(fields)) if alternatives else _parse_reply(fields)
                )
                alternatives = []
        except (ValueError, TypeError, KeyError, RecursionError):
            raise ConfigError(
                f"{to_printable(path)}: line {number} is neither a reply nor a request", remedy=_FORMS
            ) from None
        if alternatives:
            break
    if alternatives:
        what = f'{to_printable(path)}: line {number}: replies with "if" have none after them that holds otherwise'
        raise ConfigError(what, remedy='a reply without "if" as the last of them')
    return requests, replies


def branch(*alternatives: tuple[Condition, Reply], otherwise: Reply) -> ScriptEntry:
    """Return the first reply whose condition one of the preceding calls meets, or ``otherwise``."""

    def choose(messages: Sequence[Message], _: Sequence[ToolSpec]) -> Reply:
        results = [_result(message) for message in takewhile(lambda each: each.role == "tool", reversed(messages))]
        return next((reply for condition, reply in alternatives if any(map(_HOLDS[condition], results))), otherwise)

    return choose


def _result(message: Message) -> dict[str, Any]:
    """Parse the envelope in a tool's message; any other text counts as a failed call."""
    try:
        result, _ = json.JSONDecoder().raw_decode(message.content)  # a notice of the program may follow
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


def _parse_reply(fields: dict[str, Any]) -> Reply:
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
