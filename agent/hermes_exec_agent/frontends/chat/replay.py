"""Scripted conversations: requests and replies from a file, with real tools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import ConfigError
from hermes_exec_agent.models import ScriptedModel
from hermes_exec_agent.models.scripted import read_script

DEMO = "demo"
"""The name of the built-in script."""
_DEMO = Path(__file__).with_name("demo.jsonl")


@dataclass(frozen=True, slots=True)
class Replay:
    """The requests and the model of a script."""

    requests: tuple[str, ...]
    """The requests, one for each turn; empty if the user types them."""
    model: ScriptedModel
    harmless: frozenset[str] = frozenset()
    """Tools whose scripted calls leave no change behind; only the built-in script can declare them."""


def read_replay(word: str) -> Replay:
    """Read the script ``demo``, or a file; see `read_script`.

    Raises:
        ConfigError: the file is not a script; names the line.
    """
    demo = word == DEMO
    path = _DEMO if demo else Path(word)
    requests, replies = read_script(path)
    if not replies:
        raise ConfigError(f"{to_printable(path)}: the script has no reply", remedy='{"content": "…"} on a line')
    model = ScriptedModel(replies, name=f"scripted: {DEMO if demo else to_printable(path.name)}")
    return Replay(tuple(requests), model, frozenset({"terminal"}) if demo else frozenset())
