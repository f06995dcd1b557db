"""The usage of a reply, as events contain it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_exec_agent.models.protocol import Usage

if TYPE_CHECKING:
    from hermes_exec_agent.runtime.events.event import Event


def to_usage_record(usage: Usage) -> dict[str, object]:
    """Return the usage in the form of an event."""
    record: dict[str, object] = {"prompt": usage.prompt, "cached": usage.cached, "completion": usage.completion}
    if usage.reasoning:
        record["reasoning"] = usage.reasoning
    if usage.cost is not None:
        record["cost"] = usage.cost
    if usage.estimated:
        record["estimated"] = True
    return record


def read_usage(event: Event) -> Usage:
    """Return the usage in an event."""
    record: dict[str, Any] = event.data.get("usage") or {}
    cost = record.get("cost")
    return Usage(
        prompt=int(record.get("prompt", 0)),
        cached=int(record.get("cached", 0)),
        completion=int(record.get("completion", 0)),
        reasoning=int(record.get("reasoning", 0)),
        cost=None if cost is None else float(cost),
        estimated=bool(record.get("estimated")),
    )
