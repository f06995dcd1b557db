"""A reply for those who have no use for its pieces."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from hermes_exec_agent.errors import ModelError
from hermes_exec_agent.models.protocol import Reply

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.models.protocol import Item, Model, ToolSpec


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
