"""Models around another model: the base class, and one that charges replies to another account."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from hermes_exec_agent.models.protocol import Reply, takes_images

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.models.protocol import Item, Model, ToolChoice, ToolSpec, Usage


class WrappedModel:
    """A model with the name, window and connections of another one; a subclass has `stream`."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    @property
    def window(self) -> int:
        """The model's window."""
        return self._model.window

    @property
    def scripted(self) -> bool:
        """Whether the model is scripted."""
        return self._model.scripted

    @property
    def vision(self) -> bool:
        """Whether the model takes images."""
        return takes_images(self._model)

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()


class CountedModel(WrappedModel):
    """The same model; ``spend`` is called with the usage of each complete reply."""

    def __init__(self, model: Model, spend: Callable[[Usage], None]) -> None:
        super().__init__(model)
        self._spend = spend

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        *,
        max_tokens: int | None = None,
        schema: dict[str, Any] | None = None,
        tool_choice: ToolChoice | None = None,
    ) -> AsyncGenerator[Item]:
        """Stream the model's reply; see `Model.stream`."""
        stream = self._model.stream(messages, tools, max_tokens=max_tokens, schema=schema, tool_choice=tool_choice)
        async with aclosing(stream) as items:
            async for item in items:
                if isinstance(item, Reply):
                    self._spend(item.usage)
                yield item
