"""The protocol of models: tools and messages in, a stream of text and a complete reply out, usage in tokens."""

from __future__ import annotations

import json
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast, runtime_checkable

from hermes_exec.errors import UsageError
from hermes_exec_agent.errors import ModelError
from hermes_exec_agent.models.images import MAX_IMAGES
from hermes_exec_agent.quoting import flatten, quote_name

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence

    from hermes_exec_agent.models.call_trace import CallTrace
    from hermes_exec_agent.models.dialects import Reasoning
    from hermes_exec_agent.models.images import Image
    from hermes_exec_agent.models.messages import Message


_LONGEST = 2000
"""Characters of a tool's description."""
Finish = Literal["stop", "tool_calls", "length", "content_filter"]
ToolChoice = Literal["none"]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """The description of a tool for a model."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema, flat and strict: no further properties, every property required or with a default."""
    size: int = field(init=False, repr=False, compare=False)
    """Bytes on the wire; measured once, as each request needs them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", len(json.dumps(self.to_wire())))

    def to_wire(self) -> dict[str, Any]:
        """Return the tool in the protocol's form."""
        function = {
            "name": self.name,
            "description": flatten(self.description, _LONGEST),
            "parameters": self.parameters,
        }
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one reply; `cost` is in US dollars, or None if no price is known."""

    prompt: int = 0
    cached: int = 0
    """Tokens of the prompt that the endpoint had cached."""
    completion: int = 0
    reasoning: int = 0
    """Tokens of the completion that are reasoning."""
    cost: float | None = None
    estimated: bool = False
    """Whether the endpoint reported nothing, so that these are estimates."""

    def to_record(self) -> dict[str, object]:
        """Return the usage in the form of an event."""
        record: dict[str, object] = {"prompt": self.prompt, "cached": self.cached, "completion": self.completion}
        if self.reasoning:
            record["reasoning"] = self.reasoning
        if self.cost is not None:
            record["cost"] = self.cost
        if self.estimated:
            record["estimated"] = True
        return record

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Usage:
        """Return the usage in an event."""
        cost = record.get("cost")
        return cls(
            prompt=int(record.get("prompt", 0)),
            cached=int(record.get("cached", 0)),
            completion=int(record.get("completion", 0)),
            reasoning=int(record.get("reasoning", 0)),
            cost=None if cost is None else float(cost),
            estimated=bool(record.get("estimated")),
        )


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of a reply's text."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """A piece of a model's reasoning, which is not part of the reply's text."""

    text: str


def read_thought(extras: Mapping[str, Any] | None) -> str:
    """Return the readable text of the reasoning in a message's extras, or in a piece of them."""
    if not extras:
        return ""
    for name in ("reasoning_content", "reasoning"):
        value = extras.get(name)
        if isinstance(value, str) and value:
            return value
    details: Any = extras.get("reasoning_details")
    if not isinstance(details, list):
        return ""
    entries = [cast("dict[str, Any]", each) for each in cast("list[object]", details) if isinstance(each, dict)]
    texts = [text for each in entries for text in (each.get("text"), each.get("summary"))]
    return "".join(text for text in texts if isinstance(text, str))


@dataclass(frozen=True, slots=True)
class Retried:
    """The pieces so far are void: the request is sent again, to ``model``."""

    reason: str
    wait_s: float
    """Seconds until then."""
    model: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete reply."""

    message: Message
    finish: Finish
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    """The model that answered, which after a fallback is not the preferred one."""
    trace: CallTrace | None = None
    """What is recorded of the request; None if the model has no endpoint."""


Item: TypeAlias = "Text | Thought | Retried | Reply"
"""One item of a reply's stream."""


class Model(Protocol):
    """A language model, or a replacement for one."""

    @property
    def name(self) -> str:
        """The name that is shown and recorded."""
        ...

    @property
    def window(self) -> int:
        """Tokens that a prompt and its reply may have together."""
        ...

    @property
    def scripted(self) -> bool:
        """Whether the replies were written beforehand; records of them have a mark."""
        ...

    def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        *,
        max_tokens: int | None = None,
        schema: dict[str, Any] | None = None,
        tool_choice: ToolChoice | None = None,
    ) -> AsyncGenerator[Item]:
        """Stream a reply: pieces of text and reasoning, and the complete `Reply` as the last item.

        After a `Retried` the pieces start again.

        Args:
            messages: the conversation; its beginning stays the same from call to call, so that endpoints can cache it.
            tools: tools that the model may call, in the same order from call to call.
            max_tokens: of the reply.
            schema: JSON Schema of the reply's text, if the endpoint can enforce one.
            tool_choice: ``none`` requests text alone, with ``tools`` still in the request for the endpoint's cache; an
                endpoint may ignore or refuse it.

        Raises:
            ModelError: there is no complete reply; the message has the attempts, and what to try.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


@runtime_checkable
class _Prepared(Protocol):
    def prepare(self) -> None: ...


def prepare(model: Model) -> None:
    """Do work that a model's first request would wait for; call it in a thread, as it may take most of a second.

    It calls the method ``prepare``, which any model may have.
    """
    if isinstance(model, _Prepared):
        model.prepare()


@runtime_checkable
class _Reasons(Protocol):
    reasoning: Reasoning | None


def get_reasoning(model: Model) -> Reasoning | None:
    """Return a model's reasoning settings; None if it has none."""
    return model.reasoning if isinstance(model, _Reasons) else None


def set_reasoning(model: Model, reasoning: Reasoning) -> bool:
    """Change a model's reasoning settings from its next reply on; False if it has none."""
    if not isinstance(model, _Reasons) or model.reasoning is None:
        return False
    model.reasoning = reasoning
    return True


async def complete(
    model: Model,
    messages: Sequence[Message],
    *,
    tools: Sequence[ToolSpec] = (),
    max_tokens: int | None = None,
    schema: dict[str, Any] | None = None,
) -> Reply:
    """Request a reply, and wait for all of it.

    Raises:
        ModelError: there is no complete reply.
    """
    stream = model.stream(messages, tools, max_tokens=max_tokens, schema=schema)
    # Closing the stream ends the request if the caller is cancelled.
    async with aclosing(stream) as items:
        async for item in items:
            if isinstance(item, Reply):
                return item
    raise ModelError(f"{model.name}: the stream ended without a reply")


CHARACTERS = 4
"""Characters of a token, about; used if the endpoint does not count."""
_MESSAGE = 4
"""Tokens of a message's frame, about."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens. Prices change, so none are built in; see `price_list`."""

    input: float
    """Of the prompt."""
    output: float
    """Of the reply."""
    cached: float | None = None
    """Of cached tokens of the prompt; as `input` if left out."""

    def cost_of(self, usage: Usage) -> float:
        """Return the cost of a reply."""
        cached = self.input if self.cached is None else self.cached
        fresh = max(usage.prompt - usage.cached, 0)
        return (fresh * self.input + usage.cached * cached + usage.completion * self.output) / 1e6


FREE = Price(0.0, 0.0)
"""The price of a model on this machine."""


def estimate_tokens(message: Message) -> int:
    """Estimate the tokens of a message, with the reasoning that its endpoint receives again."""
    size = (
        len(message.content)
        + len(read_thought(message.extras))
        + sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
    )
    return _MESSAGE + -(-size // CHARACTERS) + sum(each.tokens for each in message.images)


def estimate_tool_tokens(tools: Iterable[ToolSpec]) -> int:
    """Estimate the tokens of the descriptions of tools."""
    return sum(-(-tool.size // CHARACTERS) for tool in tools)


def estimate_usage(messages: Sequence[Message], tools: Sequence[ToolSpec], reply: Message) -> Usage:
    """Estimate the usage of a reply whose endpoint reported none."""
    prompt = sum(map(estimate_tokens, messages)) + estimate_tool_tokens(tools)
    return Usage(prompt=prompt, completion=estimate_tokens(reply), estimated=True)


def sum_usage(usages: Iterable[Usage]) -> Usage:
    """Return the sum. Its cost covers the replies with a known price; None if there are none."""
    each = list(usages)
    costs = [usage.cost for usage in each if usage.cost is not None]
    return Usage(
        prompt=sum(usage.prompt for usage in each),
        cached=sum(usage.cached for usage in each),
        completion=sum(usage.completion for usage in each),
        reasoning=sum(usage.reasoning for usage in each),
        cost=sum(costs) if costs else None,
        estimated=any(usage.estimated for usage in each),
    )


def takes_images(model: Model) -> bool:
    """Whether a model takes images, as its configuration says."""
    return getattr(model, "vision", False) is True


def refuse_blind(model: Model) -> None:
    """Check that a model takes images.

    Raises:
        UsageError: it does not.
    """
    if not takes_images(model):
        raise UsageError(
            f"{quote_name(model.name)} takes no images",
            remedy="vision = true in its table [models.NAME] of your hermes.toml if it does, or another model",
        )


def check_images(images: Sequence[Image], model: Model) -> None:
    """Check that a request may have these images.

    Raises:
        UsageError: there are too many, or the model takes none.
    """
    refuse_blind(model)
    if len(images) > MAX_IMAGES:
        raise UsageError(f"{len(images)} images in one request", remedy=f"{MAX_IMAGES} at most")
