"""A conversation that was written beforehand: what the person says, and what the model answers. The tools are real."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.config.paths import read_regular, shown
from hermes_exec.errors import ConfigError
from hermes_exec_agent.models import ScriptedModel, ask, say

if TYPE_CHECKING:
    from hermes_exec_agent.models.protocol import Reply

DEMO = "demo"
"""The word for the one that comes with us."""
_DEMO = Path(__file__).with_name("demo.jsonl")
_FORMS = '{"user": "…"} or {"content": "…", "tool_calls": [{"name": "terminal", "arguments": {"command": "ls"}}]}'


@dataclass(frozen=True, slots=True)
class Replay:
    """A script, read."""

    requests: tuple[str, ...]
    """What the person says, one turn each; empty where a person is to say it."""
    model: ScriptedModel


def read_replay(word: str) -> Replay:
    """Read ``demo``, or the file of that name: a JSON object a line.

    Raises:
        ConfigError: it is no such file; names the line.
    """
    path = _DEMO if word == DEMO else Path(word)
    requests: list[str] = []
    replies: list[Reply] = []
    for number, text in enumerate(read_regular(path).decode("utf-8", "replace").splitlines(), 1):
        if not text.strip():
            continue
        try:
            told: Any = json.loads(text)
            if "user" in told:
                requests.append(_text(told["user"]))
            else:
                replies.append(_reply(told))
        except (ValueError, TypeError, KeyError, RecursionError):
            raise ConfigError(f"{shown(path)}: line {number} belongs to no conversation", remedy=_FORMS) from None
    name = DEMO if word == DEMO else shown(path.name)
    return Replay(tuple(requests), ScriptedModel(replies, name=f"scripted: {name}"))


def _reply(told: Any) -> Reply:
    calls = [(_text(call["name"]), dict(call["arguments"])) for call in told.get("tool_calls") or ()]
    content = told.get("content") or ""
    if calls:
        return ask(*calls, text=str(content))
    return say(_text(content))


def _text(told: object) -> str:
    if not isinstance(told, str) or not told:
        raise TypeError
    return told
