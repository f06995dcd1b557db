"""Put a reply together from the pieces of a stream.

Endpoints differ in how they cut: a call's arguments come in any number of pieces or at once, its id on the first piece,
on all or on none, and some leave out the index that says which call a piece belongs to.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_exec_agent.messages import Message, ToolCall
from hermes_exec_agent.models.protocol import Usage

if TYPE_CHECKING:
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletionChunk
    from openai.types.chat.chat_completion_chunk import ChoiceDelta, ChoiceDeltaToolCall

    from hermes_exec_agent.models.protocol import Finish

LONGEST = 16 << 20
"""Characters of a reply. Nobody's window holds more, so what is longer is no reply but a fault."""


class TooLong(Exception):
    """The endpoint does not stop."""


@dataclass(slots=True)
class _Call:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])


class Nothing(EOFError):
    """A stream had no piece of a reply, as that of a web page; its argument is the type that it was said to have."""


class Assembly:
    """A reply that is coming."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        """What the endpoint counted, once it told."""
        self.model = ""
        self._text: list[str] = []
        self._calls: dict[int, _Call] = {}
        self._finish = ""
        self._size = 0

    @property
    def begun(self) -> bool:
        """Whether a piece of it came."""
        return bool(self._text or self._calls or self.model)

    def add(self, chunk: ChatCompletionChunk) -> str:
        """Take a piece in; gives the text that it adds.

        Raises:
            TooLong: there is no end to it.
        """
        self.model = chunk.model or self.model
        if chunk.usage is not None:
            self.usage = _usage(chunk.usage)
        if not chunk.choices:
            return ""
        choice = chunk.choices[0]
        # Servers that leave fields out give objects of the SDK without them.
        delta: ChoiceDelta | None = getattr(choice, "delta", None)
        self._finish = getattr(choice, "finish_reason", None) or self._finish
        if delta is None:
            return ""
        for piece in delta.tool_calls or ():
            self._add_call(piece)
        text = (delta.content or "") + (delta.refusal or "")
        self._grow(len(text))
        self._text.append(text)
        return text

    def _add_call(self, piece: ChoiceDeltaToolCall) -> None:
        index: int | None = getattr(piece, "index", None)
        if index is None:
            # Without an index a new id, or a name again, begins the next call.
            last = self._calls.get(max(self._calls, default=-1))
            begins = last is None or (piece.id and piece.id != last.id) or bool(piece.function and piece.function.name)
            index = len(self._calls) if begins else max(self._calls)
        call = self._calls.setdefault(index, _Call())
        call.id = call.id or piece.id or ""
        if piece.function is not None:
            call.name = call.name or piece.function.name or ""
            arguments = _text_of(piece.function.arguments)
            self._grow(len(arguments))
            call.arguments.append(arguments)

    def _grow(self, by: int) -> None:
        self._size += by
        if self._size > LONGEST:
            raise TooLong

    @property
    def finished(self) -> bool:
        """Whether the endpoint said that this is all."""
        return bool(self._finish)

    def message(self) -> Message:
        """What came, as a message. A call without an id gets one."""
        calls = tuple(
            ToolCall(call.id or f"call_{secrets.token_hex(8)}", call.name, "".join(call.arguments) or "{}")
            for _, call in sorted(self._calls.items())
        )
        return Message("assistant", "".join(self._text), calls)

    def finish(self) -> Finish:
        """Why it is all."""
        if self._finish == "length":
            return "length"
        if self._finish == "content_filter":
            return "content_filter"
        # Some say `stop` although they ask for tools.
        return "tool_calls" if self._calls else "stop"


def _text_of(arguments: object) -> str:
    """Arguments as the JSON text that they should be; some servers send the object itself, and the SDK lets it pass."""
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return json.dumps(arguments, ensure_ascii=False)


def _usage(told: CompletionUsage) -> Usage:
    details = getattr(told, "prompt_tokens_details", None)
    extra = told.model_extra or {}
    cost = extra.get("cost")  # OpenRouter tells what it bills
    return Usage(
        prompt=told.prompt_tokens or 0,
        cached=getattr(details, "cached_tokens", None) or 0,
        completion=told.completion_tokens or 0,
        cost=float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None,
    )
