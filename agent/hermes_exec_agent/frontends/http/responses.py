"""Requests and replies in the form of OpenAI's Responses: items for each call and each message of a turn.

The id of a response names its conversation and the number of its request there, so that the log alone has the
responses: `read_response` builds an earlier one from the events.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from hermes_exec.errors import UsageError
from hermes_exec_agent.frontends.http import protocol
from hermes_exec_agent.models.messages import Message
from hermes_exec_agent.models.protocol import Usage, sum_usage
from hermes_exec_agent.runtime.links import LinkFilter, links_to_text
from hermes_exec_agent.runtime.named_hosts import find_hosts
from hermes_exec_agent.runtime.updates import CallEnded, CallStarted, Ended, Replied, Retried, Text, Warned

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hermes_exec.errors import HermesError
    from hermes_exec_agent.models.images import Image
    from hermes_exec_agent.runtime import Answer, Conversation
    from hermes_exec_agent.runtime.events.event import Event
    from hermes_exec_agent.runtime.updates import Update

_ID = re.compile(r"resp_([A-Za-z0-9._-]{1,64})_([0-9]{1,9})")
_MOST_ITEMS = 2000
_NOT_OURS = ("tools", "prompt", "include", "background", "max_tool_calls")
"""Options that are refused, because ignoring them would change the meaning of the reply."""


class _Part(BaseModel):
    type: Literal["input_text", "output_text", "text"]
    text: str


class _InputItem(BaseModel):
    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_Part]

    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content)


class _Named(BaseModel):
    id: str = Field(max_length=100)


class ResponseRequest(BaseModel):
    """A request. Sampling options are ignored; the configuration of the model applies."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(default="", max_length=200)
    input: str | list[_InputItem]
    own_instructions: str = Field(default="", alias="instructions")
    stream: bool = False
    previous_response_id: str | None = Field(default=None, max_length=100)
    conversation_field: str | _Named = Field(default="", alias="conversation")
    """The id of a conversation to continue."""
    person: str = Field(default="", max_length=64)
    """An extension of ours: the person that the conversation belongs to."""

    @property
    def conversation(self) -> str:
        """The id of the conversation to continue; empty for a new one."""
        if self.previous_response_id:
            return parse_id(self.previous_response_id)[0]
        named = self.conversation_field
        return named if isinstance(named, str) else named.id

    @property
    def _items(self) -> list[_InputItem]:
        return [_InputItem(role="user", content=self.input)] if isinstance(self.input, str) else self.input

    @property
    def request(self) -> str:
        """The text of the last item."""
        return self._items[-1].text()

    @property
    def instructions(self) -> str:
        """The instructions, with the text of system messages."""
        texts = [self.own_instructions, *(each.text() for each in self._items if each.role in {"system", "developer"})]
        return "\n\n".join(text for text in texts if text)

    @property
    def images(self) -> tuple[Image, ...]:
        """No images; an item with one is refused."""
        return ()

    @property
    def history(self) -> tuple[Message, ...]:
        """The earlier messages, as sent by the client."""
        return tuple(
            Message("user" if each.role == "user" else "assistant", each.text())
            for each in self._items[:-1]
            if each.role in {"user", "assistant"}
        )

    def check(self) -> None:
        """Check what the types do not say.

        Raises:
            UsageError: something is not supported.
        """
        given = self.model_extra or {}
        for name in _NOT_OURS:
            if given.get(name):
                raise UsageError(f"{name} is not supported: the agent selects its own tools and replies")
        if given.get("text") not in (None, {}, {"format": {"type": "text"}}):
            raise UsageError("text is not supported: the agent answers in text")
        if given.get("store") is False:
            raise UsageError("store: false is not supported: the log keeps all conversations")
        if not 1 <= len(self._items) <= _MOST_ITEMS:
            raise UsageError(f"input: it should have 1 to {_MOST_ITEMS} items")
        if self._items[-1].role != "user" or not self.request.strip():
            raise UsageError("the last item of the input must be a message of the user, with text")
        if self.previous_response_id and self.conversation_field:
            raise UsageError("previous_response_id and conversation exclude each other")


def read_request(body: bytes) -> ResponseRequest:
    """Parse a request.

    Raises:
        UsageError: the request is invalid or not supported.
    """
    asked = protocol.read_model(ResponseRequest, body)
    asked.check()
    return asked


def parse_id(id: str) -> tuple[str, int]:
    """Return the conversation of a response, and the number of its request there.

    Raises:
        UsageError: it is not the id of a response.
    """
    found = _ID.fullmatch(id)
    if found is None:
        raise UsageError(f"there is no response {id[:100]!r}")
    return found[1], int(found[2])


def format_id(conversation: str, number: int) -> str:
    """Return the id of a response."""
    return f"resp_{conversation}_{number}"


def count_requests(events: Sequence[Event]) -> int:
    """Return the number of requests in a conversation."""
    return sum(event.kind == "user" for event in events)


class ResponseWriter:
    """Formats one response: its items as they come, and their events."""

    def __init__(
        self,
        conversation: Conversation,
        number: int,
        clean: Callable[[str], str],
        seen: Callable[[CallEnded], None],
        write: Callable[[bytes], None] | None = None,
        previous: str | None = None,
    ) -> None:
        """``number`` is that of its request; ``clean`` removes secrets; ``write`` gets each event of a stream."""
        self._clean = clean
        self._seen = seen
        self._write = write
        self._numbers = itertools.count()
        self._head = _create_head(conversation.id, number, conversation.model.name, time.time(), previous)
        self._items: list[dict[str, Any]] = []
        self._message: dict[str, Any] | None = None
        self._links = LinkFilter(self._add_text, lambda: conversation.hosts)

    @property
    def id(self) -> str:
        """The id of the response."""
        return str(self._head["id"])

    def begin(self) -> bytes:
        """Return the first events."""
        shown: dict[str, Any] = {**self._head, "output": []}
        return b"".join(self._format(f"response.{name}", {"response": shown}) for name in ("created", "in_progress"))

    def update(self, update: Update) -> None:
        """Handle an event of the turn."""
        if isinstance(update, Text):
            self._links.feed(update.text)
        elif isinstance(update, Replied | Warned | Retried | Ended):
            self._links.flush()
            self._end_message("incomplete" if isinstance(update, Retried) else "completed")
        elif isinstance(update, CallStarted):
            call = update.call
            self._add_item(_create_call(call.id, call.name, self._clean(call.arguments)))
        elif isinstance(update, CallEnded):
            self._seen(update)
            self._add_item(_create_output(update.call.id, self._clean(update.envelope.text())))

    def end(self, answer: Answer) -> bytes:
        """Return the last event."""
        found = self.to_json(answer)
        name = "completed" if found["status"] == "completed" else "incomplete"
        return self._format(f"response.{name}", {"response": found})

    def fail(self, error: HermesError) -> bytes:
        """Return the last event of a turn that failed."""
        problem = {"code": "server_error", "message": str(error)}
        shown = {**self._head, "status": "failed", "error": problem, "output": self._items}
        return self._format("response.failed", {"response": shown})

    def to_json(self, answer: Answer) -> dict[str, Any]:
        """Return the whole response."""
        return {
            **self._head,
            **_describe_end(answer.outcome),
            "output": self._items,
            "usage": format_usage(answer.usage),
        }

    def _add_text(self, text: str) -> None:
        if not text:
            return
        if self._message is None:
            self._message = _create_message(f"{self.id}_{len(self._items)}", "", "in_progress")
            self._emit("output_item.added", item=self._message | {"content": []})
            self._emit("content_part.added", **self._where, part=_create_part(""))
        self._message["content"][0]["text"] += text
        self._emit("output_text.delta", **self._where, delta=text, logprobs=[])

    @property
    def _where(self) -> dict[str, Any]:
        return {"item_id": self._message["id"] if self._message else "", "content_index": 0}

    def _end_message(self, status: str) -> None:
        if self._message is None:
            return
        part = self._message["content"][0]
        self._message["status"] = status
        self._emit("output_text.done", **self._where, text=part["text"], logprobs=[])
        self._emit("content_part.done", **self._where, part=part)
        self._emit("output_item.done", item=self._message)
        self._items.append(self._message)
        self._message = None

    def _add_item(self, item: dict[str, Any]) -> None:
        """Add an item that is complete."""
        self._links.flush()
        self._end_message("completed")
        self._emit("output_item.added", item=item)
        self._emit("output_item.done", item=item)
        self._items.append(item)

    def _emit(self, name: str, **payload: Any) -> None:
        if self._write is not None:
            self._write(self._format(f"response.{name}", {"output_index": len(self._items), **payload}))

    def _format(self, name: str, payload: dict[str, Any]) -> bytes:
        event = {"type": name, "sequence_number": next(self._numbers), **payload}
        return f"event: {name}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def read_response(conversation: str, number: int, events: Sequence[Event]) -> dict[str, Any] | None:
    """Return an earlier response, as the log has it; None if there is none."""
    places = [place for place, event in enumerate(events) if event.kind == "user"]
    if not 1 <= number <= len(places):
        return None
    begin = places[number - 1]
    end = places[number] if number < len(places) else len(events)
    hosts = {host for event in events[: begin + 1] if event.kind == "user" for host in find_hosts(_text(event))}
    turn = events[begin:end]
    head = _create_head(conversation, number, _find_model(events[:end]), events[begin].at, None)
    items: list[dict[str, Any]] = []
    for event in turn:
        if event.kind in ("assistant", "interrupted") and (text := _text(event)):
            items.append(_create_message(f"{head['id']}_{len(items)}", links_to_text(text, hosts), "completed"))
        if event.kind == "call":
            items.append(_create_call(event.data["id"], event.data["name"], _find_arguments(turn, event)))
        elif event.kind == "result":
            items.append(_create_output(event.data["id"], str(event.data["content"])))
    used = sum_usage([Usage.from_record(event.data["usage"]) for event in turn if event.data.get("usage")])
    last = next((event for event in reversed(turn) if event.kind in ("assistant", "interrupted")), None)
    ended = last is not None and last.kind == "assistant" and not last.data.get("tool_calls")
    outcome = "answered" if ended else "interrupted"
    return {**head, **_describe_end(outcome), "output": items, "usage": format_usage(used)}


def _text(event: Event) -> str:
    return str(event.data.get("content") or "")


def _find_model(events: Sequence[Event]) -> str:
    return next((str(event.data["model"]) for event in reversed(events) if event.data.get("model")), "")


def _find_arguments(turn: Sequence[Event], call: Event) -> str:
    """Return the arguments of a call: its own if they were rewritten, else those of the reply."""
    if "arguments" in call.data:
        return str(call.data["arguments"])
    asked = (each for event in turn if event.kind == "assistant" for each in event.data.get("tool_calls") or ())
    return next((str(each["arguments"]) for each in asked if each["id"] == call.data["id"]), "")


def _create_head(conversation: str, number: int, model: str, created: float, previous: str | None) -> dict[str, Any]:
    return {
        "id": format_id(conversation, number), "object": "response", "created_at": int(created), "model": model,
        "status": "in_progress", "error": None, "incomplete_details": None, "instructions": None, "metadata": {},
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "temperature": None, "top_p": None,
        "previous_response_id": previous, "conversation": {"id": conversation}, "store": True, "usage": None,
    }  # fmt: skip


def _create_message(id: str, text: str, status: str) -> dict[str, Any]:
    content = [_create_part(text)]
    return {"type": "message", "id": f"msg_{id}", "role": "assistant", "status": status, "content": content}


def _create_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _create_call(id: str, name: str, arguments: str) -> dict[str, Any]:
    """Return the item of a call that the agent runs itself."""
    return {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name, "arguments": arguments,
            "status": "completed"}  # fmt: skip


def _create_output(id: str, output: str) -> dict[str, Any]:
    return {"type": "function_call_output", "id": f"fco_{id}", "call_id": id, "output": output, "status": "completed"}


def _describe_end(outcome: str) -> dict[str, Any]:
    if outcome in ("answered", "empty"):
        return {"status": "completed"}
    if outcome == "interrupted":
        return {"status": "cancelled"}
    reason = "content_filter" if outcome == "filtered" else "max_output_tokens"
    return {"status": "incomplete", "incomplete_details": {"reason": reason}}


def format_usage(usage: Usage) -> dict[str, Any]:
    """Return the usage in the form of the protocol."""
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }
