"""Tokens and what they cost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec_agent.models.protocol import Usage
from hermes_exec_agent.models.reply_extras import read_thought

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.models.protocol import ToolSpec

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
