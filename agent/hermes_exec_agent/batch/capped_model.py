"""A model whose requests are reserved from an account before they are sent."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol

from hermes_exec_agent.batch.ledger import Amounts
from hermes_exec_agent.errors import ContextTooLong, ModelRefused
from hermes_exec_agent.models.protocol import Price, Reply, Retried
from hermes_exec_agent.models.wrapped import WrappedModel

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.models.protocol import Item, Model, ToolChoice, ToolSpec, Usage


class Account(Protocol):
    """What requests may still use."""

    async def reserve(self, need: Amounts) -> None:
        """Reserve an amount; raises a `HermesError` if it is not allowed."""
        ...

    def settle(self, reserved: Amounts, used: Amounts) -> None:
        """Count what a request used."""
        ...


_FRAME = 64
"""Tokens of the frame of a message, and of the request, at most."""


def estimate_prompt_bound(messages: Sequence[Message], tools: Sequence[ToolSpec], schema: dict[str, Any] | None) -> int:
    """Return an upper bound of a prompt's tokens: no tokenizer makes more tokens than the text has bytes."""
    size = _FRAME + sum(tool.size for tool in tools)
    size += len(json.dumps(schema)) if schema is not None else 0
    for message in messages:
        size += _FRAME + len(message.content.encode("utf-8", "surrogatepass"))
        size += sum(_FRAME + len(call.name) + len(call.arguments.encode("utf-8", "surrogatepass"))
                    for call in message.tool_calls)  # fmt: skip
        size += len(json.dumps(dict(message.extras))) if message.extras else 0
    return size


class CappedModel(WrappedModel):
    """The same model, within the caps of an account, such as that of a trial and its run."""

    def __init__(self, model: Model, account: Account, price: Price | None, max_tokens: int | None) -> None:
        """``price`` is the highest of the models that may answer; ``max_tokens`` is of replies without a limit."""
        super().__init__(model)
        self._account = account
        self._price = price
        self._max_tokens = max_tokens

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        *,
        max_tokens: int | None = None,
        schema: dict[str, Any] | None = None,
        tool_choice: ToolChoice | None = None,
    ) -> AsyncGenerator[Item]:
        """Stream the model's reply; see `Model.stream`.

        An attempt that failed counts in full, as its endpoint may charge it, unless the endpoint refused the request;
        so does a reply whose endpoint does not report what it used.

        Raises:
            HermesError: a cap does not allow the request, such as `CapReached` and `TrialCapReached`.
        """
        max_tokens = max_tokens or self._max_tokens
        need = self._estimate_bound(messages, tools, schema, max_tokens or self._model.window)
        await self._account.reserve(need)
        is_reserved = True
        used = need
        try:
            stream = self._model.stream(messages, tools, max_tokens=max_tokens, schema=schema, tool_choice=tool_choice)
            async with aclosing(stream) as items:
                async for item in items:
                    if isinstance(item, Reply):
                        used = self._amounts(item.usage, need)
                    elif isinstance(item, Retried):
                        self._account.settle(need, need)
                        is_reserved = False
                        await self._account.reserve(need)
                        is_reserved = True
                    yield item
        except (ModelRefused, ContextTooLong):
            used = Amounts.of(steps=1)
            raise
        finally:
            if is_reserved:
                self._account.settle(need, used)

    def _estimate_bound(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], schema: dict[str, Any] | None, reply: int
    ) -> Amounts:
        prompt = estimate_prompt_bound(messages, tools, schema)
        if self._price is None:
            return Amounts.of(tokens=prompt + reply, steps=1)
        highest = max(self._price.input, self._price.cached or 0.0)
        return Amounts.of(dollars=(prompt * highest + reply * self._price.output) / 1e6, tokens=prompt + reply, steps=1)

    def _amounts(self, usage: Usage, need: Amounts) -> Amounts:
        if usage.estimated or not (usage.prompt or usage.completion):
            return need
        cost = usage.cost if usage.cost is not None else self._price.cost_of(usage) if self._price else 0.0
        return Amounts.of(dollars=cost, tokens=usage.prompt + usage.completion, steps=1)
