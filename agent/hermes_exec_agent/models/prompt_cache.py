"""Marks for endpoints that cache only the marked beginnings of prompts, as Anthropic's models do.

Such a model takes at most four marks. The first one is at the end of the system message, so that it covers the tools,
too; the others are at the last messages with text. Each request finds the beginning that the request before it
marked, and pays in full for what was added.
"""

from __future__ import annotations

import re
from typing import Any, Literal

CacheMarks = Literal["auto", "marked", "off"]
"""``auto`` marks prompts of Anthropic's models, ``marked`` of every model."""

_MARK = {"type": "ephemeral"}
_LAST = 3
_ANTHROPIC = re.compile(r"\b(?:anthropic|claude)\b", re.IGNORECASE)


def needs_marks(setting: CacheMarks, model: str) -> bool:
    """Return whether prompts for the model are marked."""
    return setting == "marked" or (setting == "auto" and bool(_ANTHROPIC.search(model)))


def mark_messages(messages: list[dict[str, Any]]) -> None:
    """Mark the system message and the last messages, which are in the form of the wire, in place."""
    # An empty text cannot be marked.
    marked = [message for message in messages[1:] if message["content"]][-_LAST:]
    if messages and messages[0]["role"] == "system":
        marked.insert(0, messages[0])
    for message in marked:
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        # The text of a message comes first, before its images; not every gateway takes a mark at an image.
        message["content"] = [{**parts[0], "cache_control": _MARK}, *parts[1:]]


def refuses_marks(refusal: str) -> bool:
    """Return whether an endpoint refused a request because of its marks."""
    return "cache_control" in refusal
