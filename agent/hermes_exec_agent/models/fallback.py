"""A model that falls back to another one while the preferred one fails."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from hermes_exec_agent.errors import ContextTooLong, ModelError, ScriptEnded
from hermes_exec_agent.models.protocol import Reply, Retried, get_reasoning, prepare, set_reasoning, takes_images

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from hermes_exec_agent.models.dialects import Reasoning
    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.models.protocol import Item, Model, ToolChoice, ToolSpec

_NOT_OURS = (ContextTooLong, ScriptEnded)
"""Errors that another model does not avoid: the caller shortens the conversation, and a script belongs to a test."""


class Fallback:
    """Asks the first of ``models`` that can answer; each reply has its model's name.

    For ``rest_s`` seconds a model that failed comes last, so that not every turn waits for it again and a
    conversation stays with one model and its cache.
    """

    def __init__(self, models: Sequence[Model], *, rest_s: float = 120.0) -> None:
        """``models`` are in order of preference."""
        self._models = tuple(models)
        self._rest_s = rest_s
        self._tired: dict[int, float] = {}

    @property
    def models(self) -> tuple[Model, ...]:
        """All models, in order of preference."""
        return self._models

    @property
    def name(self) -> str:
        """The preferred model's name."""
        return self._models[0].name

    @property
    def window(self) -> int:
        """The window of the model that comes first now."""
        return self._order()[0].window

    @property
    def vision(self) -> bool:
        """Whether any of the models takes images; the others receive a request without them."""
        return any(map(takes_images, self._models))

    @property
    def scripted(self) -> bool:
        """Whether any of the models is scripted."""
        return any(model.scripted for model in self._models)

    @property
    def reasoning(self) -> Reasoning | None:
        """The reasoning settings of the preferred model."""
        return get_reasoning(self._models[0])

    @reasoning.setter
    def reasoning(self, reasoning: Reasoning) -> None:
        set_reasoning(self._models[0], reasoning)

    def _order(self, messages: Sequence[Message] = ()) -> list[Model]:
        """Return the models in the order in which they are asked; those that take images first if a message has one."""
        now = time.monotonic()
        order = sorted(self._models, key=lambda model: self._tired.get(id(model), 0.0) > now)
        return sorted(order, key=takes_images, reverse=True) if any(each.images for each in messages) else order

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        *,
        max_tokens: int | None = None,
        schema: dict[str, Any] | None = None,
        tool_choice: ToolChoice | None = None,
    ) -> AsyncGenerator[Item]:
        """See `Model.stream`.

        Raises:
            ModelError: no model returned a complete reply; the message has the reason of each.
        """
        reasons: list[str] = []
        order = self._order(messages)
        for position, model in enumerate(order):
            stream = model.stream(messages, tools, max_tokens=max_tokens, schema=schema, tool_choice=tool_choice)
            try:
                async with aclosing(stream) as items:
                    async for item in items:
                        if isinstance(item, Reply):
                            self._tired.pop(id(model), None)
                        yield item
            except _NOT_OURS:
                raise
            except ModelError as error:
                if tool_choice is None:  # the model may still answer requests without it
                    self._tired[id(model)] = time.monotonic() + self._rest_s
                reasons.append(str(error))
                if position + 1 == len(order):
                    if len(reasons) == 1:
                        raise
                    raise ModelError("no model answered: " + "; ".join(reasons), remedy=error.remedy) from None
                yield Retried(error.what, 0.0, order[position + 1].name)
            else:
                return

    def prepare(self) -> None:
        """Prepare the preferred model; see `protocol.prepare`."""
        prepare(self._models[0])

    async def close(self) -> None:
        """Close the connections of all models."""
        await asyncio.gather(*(model.close() for model in self._models))
