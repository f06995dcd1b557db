"""Put a reply together from the pieces of a stream.

Endpoints differ in how they cut: a call's arguments come in any number of pieces or at once, its id on the first piece,
on all or on none, and some leave out the index that says which call a piece belongs to, or send 0 for all of them.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletionChunk
    from openai.types.chat.chat_completion_chunk import ChoiceDelta, ChoiceDeltaToolCall

    from hermes_exec_agent.models.protocol import Finish

LONGEST = 16 << 20
"""Characters of a reply. Nobody's window holds more, so what is longer is no reply but a fault."""


_CALL = 64
"""Characters that a call counts for beside its arguments."""


class TooLong(Exception):
    """The endpoint does not stop."""


@dataclass(slots=True)
class _Call:
    index: int | None
    extras: Extras
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])

    def is_complete(self) -> bool:
        """Whether its arguments are a whole JSON value."""
        try:
            json.loads("".join(self.arguments))
        except (ValueError, RecursionError):
            return False
        return True


class Nothing(EOFError):
    """A stream had no piece of a reply, as that of a web page; its argument is the type that it was said to have."""


class Assembly:
    """A reply that is coming."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        """What the endpoint counted, once it told."""
        self.model = ""
        self._text: list[str] = []
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._finish = ""
        self._size = 0
        self._budget = ExtrasBudget()
        self._extras = Extras(MESSAGE_FIELDS, self._budget)

    @property
    def begun(self) -> bool:
        """Whether a piece of it came."""
        return bool(self._text or self._calls or self.model)

    def add(self, chunk: ChatCompletionChunk) -> list[Text | Thought]:
        """Take a piece in; gives what it adds.

        Raises:
            TooLong: there is no end to it.
            ExtrasTooLong: what it has beside the known fields exceeds the bound.
        """
        self.model = chunk.model or self.model
        if chunk.usage is not None:
            self.usage = _usage(chunk.usage)
        if not chunk.choices:
            return []
        choice = chunk.choices[0]
        # Servers that leave fields out give objects of the SDK without them.
        delta: ChoiceDelta | None = getattr(choice, "delta", None)
        self._finish = getattr(choice, "finish_reason", None) or self._finish
        if delta is None:
            return []
        self._extras.add(delta.model_extra)
        for piece in delta.tool_calls or ():
            self._add_call(piece)
        thought = read_thought(delta.model_extra)
        text = (delta.content or "") + (delta.refusal or "")
        self._grow(len(text))
        self._text.append(text)
        return [*([Thought(thought)] if thought else []), *([Text(text)] if text else [])]

    def _add_call(self, piece: ChoiceDeltaToolCall) -> None:
        name = (piece.function.name if piece.function else "") or ""
        arguments = _text_of(piece.function.arguments if piece.function else None)
        index: int | None = getattr(piece, "index", None)
        call = self._find_call(index, piece.id or "", name, arguments)
        if call is None:
            call = _Call(index, Extras(CALL_FIELDS, self._budget))
            self._calls.append(call)
            if index is not None:
                self._by_index[index] = call
            self._grow(_CALL)
        if piece.id and not call.id:
            call.id = piece.id
            self._by_id.setdefault(piece.id, call)
        call.name = call.name or name
        self._grow(len(arguments))
        call.arguments.append(arguments)
        call.extras.add(piece.model_extra)

    def _find_call(self, index: int | None, id: str, name: str, arguments: str) -> _Call | None:
        """The call of which this is one more piece, or None if it begins one."""
        if index is not None:
            call = self._by_index.get(index)
            if call is None or not name or not call.name:
                return call
            # Some send every call with index 0: another id, or a name and arguments after whole ones, begins the next.
            other = id and call.id and id != call.id
            return None if other or (not id and arguments and call.is_complete()) else call
        if id and (known := self._by_id.get(id)):
            return known
        # Without an index a new id, or a name again, begins the next call.
        last = self._calls[-1] if self._calls else None
        return None if last is None or (id and id != last.id) or name else last

    def _grow(self, by: int) -> None:
        self._size += by
        if self._size > LONGEST:
            raise TooLong

    @property
    def finished(self) -> bool:
        """Whether the endpoint said that this is all."""
        return bool(self._finish)

    def message(self, origin: str = "") -> Message:
        """What came, as a message of the endpoint ``origin``. A call without an id gets one."""
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


def _usage(usage: CompletionUsage) -> Usage:
    details = getattr(usage, "prompt_tokens_details", None)
    written = getattr(usage, "completion_tokens_details", None)
    extra = usage.model_extra or {}
    cost = extra.get("cost")  # OpenRouter tells what it bills
    return Usage(
        prompt=usage.prompt_tokens or 0,
        cached=getattr(details, "cached_tokens", None) or 0,
        completion=usage.completion_tokens or 0,
        reasoning=getattr(written, "reasoning_tokens", None) or 0,
        cost=float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None,
    )
