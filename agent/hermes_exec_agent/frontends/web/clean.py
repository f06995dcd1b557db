"""Values for the page: bounded, without known secrets, and with controls and marks of direction made visible."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hermes_exec_agent.frontends.chat.safe_text import escape_text

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST = 20_000
"""Characters of one text."""
MOST = 1_000
"""Items of one list or table."""
_DEEPEST = 12


def clean_value(value: Any, redact: Callable[[str], str], depth: int = 0) -> Any:
    """Return a JSON value whose texts can be shown as they are; every other object becomes text."""
    if value is None or isinstance(value, bool | int | float):
        return None if isinstance(value, float) and not math.isfinite(value) else value  # JSON has no other numbers
    if depth < _DEEPEST and isinstance(value, dict):
        items: list[tuple[Any, Any]] = list(value.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  it is JSON
        return {clean_text(str(key), redact, 200): clean_value(each, redact, depth + 1) for key, each in items[:MOST]}
    if depth < _DEEPEST and isinstance(value, list | tuple):
        each_of: list[Any] = list(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  it is JSON
        return [clean_value(each, redact, depth + 1) for each in each_of[:MOST]]
    return clean_text(str(value), redact)


def clean_text(text: str, redact: Callable[[str], str], most: int = LONGEST) -> str:
    """Return a text as the page shows it; its secrets are removed before it is cut."""
    text = redact(text)
    shown = escape_text(text[:most])
    return shown if len(text) <= most else f"{shown}… {len(text) - most} more characters"
