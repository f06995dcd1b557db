"""Assemble a reply from the chunks of a stream.

Endpoints split replies differently: the arguments of a call come in one piece or in many, its id with the first chunk,
with every chunk or with none, and some leave out the index of a chunk's call, or send 0 for every call.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from hermes_exec_agent.models.messages import Message, ToolCall
from hermes_exec_agent.models.protocol import Text, Thought, Usage, read_thought
from hermes_exec_agent.models.reply_extras import (
    CALL_FIELDS,
    MESSAGE_FIELDS,
    Extras,
    ExtrasBudget,
    repair_surrogates,
)

if TYPE_CHECKING:
    from hermes_exec_agent.models.protocol import Finish

LONGEST = 16 << 20
"""Characters of a reply, above which the endpoint is at fault: no model's window is that large."""


_CALL = 64
"""Characters that a call counts for, besides its arguments."""


class ReplyTooLong(Exception):
    """A reply exceeds `LONGEST` characters."""


@dataclass(slots=True)
class _PartialCall:
    index: int | None
    extras: Extras
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])

    def is_complete(self) -> bool:
        """Whether the arguments are a complete JSON value."""
        try:
            json.loads("".join(self.arguments))
        except (ValueError, RecursionError):
            return False
        return True


class EmptyStream(EOFError):
    """A stream ended without a chunk of a reply, such as a web page; the argument is its content type."""


class ReplyAssembler:
    """A reply whose chunks are arriving."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        """Tokens as the endpoint counted them, once received."""
        self.model = ""
        self.request_id = ""
        self.whole: dict[str, Any] | None = None
        """The reply, if it was not streamed."""
        self._text: list[str] = []
        self._calls: list[_PartialCall] = []
        self._by_index: dict[int, _PartialCall] = {}
        self._by_id: dict[str, _PartialCall] = {}
        self._finish = ""
        self._size = 0
        self._budget = ExtrasBudget()
        self._extras = Extras(MESSAGE_FIELDS, self._budget)

    @property
    def has_begun(self) -> bool:
        """Whether a chunk with content has arrived."""
        return bool(self._text or self._calls or self.model)

    def add(self, chunk: dict[str, Any]) -> list[Text | Thought]:
        """Add a chunk; return the text and reasoning in it.

        Raises:
            ReplyTooLong: the reply is too long.
            ExtrasTooLong: its additional fields exceed their limit.
            TypeError: the chunk has another shape.
        """
        return self._add(chunk, "delta")

    def add_whole(self, reply: dict[str, Any]) -> list[Text | Thought]:
        """Add a reply that was not streamed; see `add`."""
        self.whole = reply
        return self._add(reply, "message")

    def _add(self, chunk: dict[str, Any], part: str) -> list[Text | Thought]:
        self.model = _read_text(chunk.get("model")) or self.model
        if usage := _read_table(chunk.get("usage")):
            self.usage = _read_usage(usage)
        choices = _read_list(chunk.get("choices"))
        if not choices:
            return []
        choice = _read_table(choices[0])
        delta = _read_table(choice.get(part))
        self._finish = _read_text(choice.get("finish_reason")) or self._finish
        self._extras.add(delta)
        for piece in _read_list(delta.get("tool_calls")):
            self._add_call(_read_table(piece))
        thought = read_thought(delta)
        text = _read_text(delta.get("content")) + _read_text(delta.get("refusal"))
        self._grow(len(text))
        self._text.append(text)
        return [*([Thought(thought)] if thought else []), *([Text(text)] if text else [])]

    def _add_call(self, piece: dict[str, Any]) -> None:
        function = _read_table(piece.get("function"))
        name = _read_text(function.get("name"))
        arguments = _text_of(function.get("arguments"))
        number: object = piece.get("index")
        index = number if isinstance(number, int) else None
        id = _read_text(piece.get("id"))
        call = self._find_call(index, id, name, arguments)
        if call is None:
            call = _PartialCall(index, Extras(CALL_FIELDS, self._budget))
            self._calls.append(call)
            if index is not None:
                self._by_index[index] = call
            self._grow(_CALL)
        if id and not call.id:
            call.id = id
            self._by_id.setdefault(id, call)
        call.name = call.name or name
        self._grow(len(arguments))
        call.arguments.append(arguments)
        call.extras.add(piece)

    def _find_call(self, index: int | None, id: str, name: str, arguments: str) -> _PartialCall | None:
        """Return the call that a chunk continues, or None if it starts a new one."""
        if index is not None:
            call = self._by_index.get(index)
            if call is None or not name or not call.name:
                return call
            # Some send index 0 for every call: another id, or a name and arguments after complete ones, start the next.
            other = id and call.id and id != call.id
            return None if other or (not id and arguments and call.is_complete()) else call
        if id and (known := self._by_id.get(id)):
            return known
        # Without an index, a new id or another name starts the next call.
        last = self._calls[-1] if self._calls else None
        return None if last is None or (id and id != last.id) or name else last

    def _grow(self, by: int) -> None:
        self._size += by
        if self._size > LONGEST:
            raise ReplyTooLong

    @property
    def is_finished(self) -> bool:
        """Whether the endpoint sent a finish reason."""
        return bool(self._finish)

    def message(self, origin: str = "") -> Message:
        """Return the reply as a message of the endpoint ``origin``; a call without an id gets one."""
        ordered = self._calls
        if all(call.index is not None for call in ordered):
            ordered = sorted(ordered, key=lambda call: call.index or 0)
        calls = tuple(
            ToolCall(
                call.id or f"call_{secrets.token_hex(8)}",
                call.name,
                repair_surrogates("".join(call.arguments)) or "{}",
                call.extras.fields,
            )
            for call in ordered
        )
        return Message(
            "assistant", repair_surrogates("".join(self._text)), calls, extras=self._extras.fields, origin=origin
        )

    def finish_reason(self) -> Finish:
        """Return the finish reason."""
        if self._finish == "length":
            return "length"
        if self._finish == "content_filter":
            return "content_filter"
        # Some endpoints send `stop` although the reply has tool calls.
        return "tool_calls" if self._calls else "stop"


def _text_of(arguments: object) -> str:
    """Return arguments as JSON text; some servers send an object instead."""
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return json.dumps(arguments, ensure_ascii=False)


def _read_usage(usage: dict[str, Any]) -> Usage:
    details = _read_table(usage.get("prompt_tokens_details"))
    written = _read_table(usage.get("completion_tokens_details"))
    cost: object = usage.get("cost")  # OpenRouter reports the cost
    return Usage(
        prompt=_read_count(usage.get("prompt_tokens")),
        cached=_read_count(details.get("cached_tokens")),
        completion=_read_count(usage.get("completion_tokens")),
        reasoning=_read_count(written.get("reasoning_tokens")),
        cost=float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None,
    )


def _read_table(value: object) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise TypeError("a value that is not an object")
    return cast("dict[str, Any]", value or {})


def _read_list(value: object) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise TypeError("a value that is not a list")
    return cast("list[object]", value)


def _read_text(value: object) -> str:
    if value is not None and not isinstance(value, str):
        raise TypeError("a value that is not text")
    return value or ""


def _read_count(value: object) -> int:
    return max(value, 0) if isinstance(value, int) else 0
