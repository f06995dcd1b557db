"""What the agent needs of a model."""

from __future__ import annotations

import json
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast, runtime_checkable

from hermes_exec_agent.errors import ModelError
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence

    from hermes_exec_agent.models.dialects import Reasoning
    from hermes_exec_agent.models.messages import Message


_LONGEST = 2000
"""Characters of a tool's description."""
Finish = Literal["stop", "tool_calls", "length", "content_filter"]
ToolChoice = Literal["none"]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema, flat and strict: no further properties, every property required or with a default."""

    def wire(self) -> dict[str, Any]:
        """In the form of the protocol."""
        function = {
            "name": self.name,
            "description": flatten(self.description, _LONGEST),
            "parameters": self.parameters,
        }
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Usage:
    """What one reply took, in tokens; `cost` in US dollars, or None where no price is known."""

    prompt: int = 0
    cached: int = 0
    """Of the prompt's tokens, those that the endpoint had already read."""
    completion: int = 0
    reasoning: int = 0
    """Of the completion's tokens, those of the model's reasoning."""
    cost: float | None = None
    estimated: bool = False
    """The endpoint told nothing; these are four characters a token."""


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of a reply's text, as it comes."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """A piece of a model's reasoning, as it comes. It is no part of the reply's text."""

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
    """The pieces so far are void: the same is asked again, of ``model``."""

    reason: str
    wait_s: float
    """Seconds until then."""
    model: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply."""

    message: Message
    finish: Finish
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    """The name of who answered, which after a fallback is not who was asked first."""


Item: TypeAlias = "Text | Thought | Retried | Reply"
"""One item of a reply's stream."""


class Model(Protocol):
    """Somebody who answers conversations."""

    @property
    def name(self) -> str:
        """What is shown and recorded of it."""
        ...

    @property
    def window(self) -> int:
        """How many tokens a prompt and its reply may have together."""
        ...

    @property
    def scripted(self) -> bool:
        """Whether nobody thinks here: the replies were written beforehand, and every record of them says so."""
        ...

    def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        *,
        max_tokens: int | None = None,
        schema: dict[str, Any] | None = None,
        tool_choice: ToolChoice | None = None,
    ) -> AsyncIterator[Item]:
        """Answer: pieces of text and of reasoning as they come, and the whole `Reply` as the last item.

        After a `Retried` the pieces begin anew.

        Args:
            messages: the conversation; its beginning is the same from call to call, so that endpoints' caches hold.
            tools: what may be asked for, in the same order from call to call.
            max_tokens: of the reply.
            schema: JSON Schema that the text of the reply has to fit, where the endpoint can constrain it.
            tool_choice: ``none`` asks for text alone, with ``tools`` still in the request for the endpoint's cache; an
                endpoint may ignore it, or refuse the request.

        Raises:
            ModelError: no whole reply could be had; what was tried, and what to try, is in its text.
        """
        ...

    async def close(self) -> None:
        """Give its connections back."""
        ...


@runtime_checkable
class _Prepared(Protocol):
    def prepare(self) -> None: ...


def prepare(model: Model) -> None:
    """Do beforehand what a model's first request would wait for: for a thread, as it may take most of a second.

    That is its method ``prepare``, which a model of your own may have, too.
    """
    if isinstance(model, _Prepared):
        model.prepare()


@runtime_checkable
class _Reasons(Protocol):
    reasoning: Reasoning | None


def get_reasoning(model: Model) -> Reasoning | None:
    """How much a model is asked to think; None if it takes no such setting."""
    return model.reasoning if isinstance(model, _Reasons) else None


def set_reasoning(model: Model, reasoning: Reasoning) -> bool:
    """Ask a model to think so much from its next reply on; False if it takes no such setting."""
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
    """Ask, and wait for the whole reply.

    Raises:
        ModelError: there was none.
    """
    stream = model.stream(messages, tools, max_tokens=max_tokens, schema=schema)
    # Closed here and now, so that a cancelled caller leaves no request running.
    async with aclosing(cast("AsyncGenerator[Item]", stream)) as items:
        async for item in items:
            if isinstance(item, Reply):
                return item
    raise ModelError(f"{model.name}: the stream ended without a reply")


CHARACTERS = 4
"""A token's, about; only where the endpoint does not count."""
_MESSAGE = 4
"""Tokens that a message's frame takes, about."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens. Prices change, so none are built in."""

    input: float
    """Of the prompt."""
    output: float
    """Of the reply."""
    cached: float | None = None
    """Of what the endpoint had read before; as `input` if left out."""

    def of(self, usage: Usage) -> float:
        """What a reply cost."""
        cached = self.input if self.cached is None else self.cached
        fresh = max(usage.prompt - usage.cached, 0)
        return (fresh * self.input + usage.cached * cached + usage.completion * self.output) / 1e6


FREE = Price(0.0, 0.0)
"""Of a model on a machine of one's own."""


def tokens(message: Message) -> int:
    """How many tokens a message takes, about; with its reasoning, which its endpoint gets back."""
    size = (
        len(message.content)
        + len(read_thought(message.extras))
        + sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
    )
    return _MESSAGE + -(-size // CHARACTERS)


def tokens_of_tools(tools: Iterable[ToolSpec]) -> int:
    """How many tokens the descriptions of tools take, about."""
    return sum(-(-len(json.dumps(tool.wire())) // CHARACTERS) for tool in tools)


def estimated_usage(messages: Sequence[Message], tools: Sequence[ToolSpec], reply: Message) -> Usage:
    """The usage of a reply whose endpoint told none."""
    prompt = sum(map(tokens, messages)) + tokens_of_tools(tools)
    return Usage(prompt=prompt, completion=tokens(reply), estimated=True)


def total(usages: Iterable[Usage]) -> Usage:
    """The sum. Its cost is that of the replies whose price is known, or None if none is."""
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
