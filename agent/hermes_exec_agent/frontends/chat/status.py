"""The lines of ``/status`` and ``/context``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec_agent.frontends.chat.safe_text import to_line, wrap_words
from hermes_exec_agent.runtime.cost_meter import format_cost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermes_exec_agent.models.protocol import Usage
    from hermes_exec_agent.runtime.context_use import ContextUse
    from hermes_exec_agent.runtime.conversation import Conversation

_HEAD = 14
_PART = 22


async def describe_status(conversation: Conversation) -> list[str]:
    """Return the model, the target, the share of the window, the cost and the running processes, a line each."""
    use, usage = conversation.measure_context(), conversation.usage
    about = ", estimated" if usage.estimated else ""
    limits = {"turn": conversation.options.most_cost, "day": conversation.options.most_cost_day}
    bounds = [f"at most {format_cost(most)} a {what}" for what, most in limits.items() if most is not None]
    running = await conversation.list_running()
    rows = {
        "conversation": conversation.id,
        "model": conversation.model.name,
        "target": conversation.place,
        "window": f"{use.share_of(use.used):.0%} of {use.window:,} tokens used",
        "cost": f"{describe_cost(usage)}, for {usage.prompt:,} tokens read and {usage.completion:,} written{about}",
        **({"budget": ", ".join(bounds)} if bounds else {}),
        "processes": "" if running else "none runs in the background",
    }
    lines = [wrap_words(f"{name:<{_HEAD}}{to_line(text)}".rstrip(), _HEAD) for name, text in rows.items()]
    return [*lines, *(f"  {to_line(each, 140)}" for each in running)]


def describe_cost(usage: Usage) -> str:
    """Return the cost in US dollars, or ``unknown``; it is 0 before the first reply."""
    if usage.cost is None and usage.prompt + usage.completion:
        return "unknown"
    return f"${usage.cost or 0:.4f}"


def describe_context(use: ContextUse) -> Iterator[str]:
    """Yield a line for each part of the next request, with its tokens and its share of the window."""
    free = max(use.window - use.used, 0)
    for name, tokens in {**use.parts, "free": free}.items():
        yield f"{name:<{_PART}}{tokens:>9,}  {use.share_of(tokens):>4.0%}"
    yield f"{'window, in tokens':<{_PART}}{use.window:>9,}  about"
