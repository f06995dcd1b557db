"""A conversation that was written beforehand: what the person says, and what the model answers. The tools are real."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hermes_exec.config.paths import to_printable
from hermes_exec_agent.models import ScriptedModel
from hermes_exec_agent.models.scripted import read_script

DEMO = "demo"
"""The word for the one that comes with us."""
_DEMO = Path(__file__).with_name("demo.jsonl")


@dataclass(frozen=True, slots=True)
class Replay:
    """A script, read."""

    requests: tuple[str, ...]
    """What the person says, one turn each; empty where a person is to say it."""
    model: ScriptedModel
    harmless: frozenset[str] = frozenset()
    """Tools that it calls only for what changes nothing that stays. No file of a person's can claim that."""


def read_replay(word: str) -> Replay:
    """Read ``demo``, or the file of that name; see `read_script`.

    Raises:
        ConfigError: it is no such file; names the line.
    """
    demo = word == DEMO
    path = _DEMO if demo else Path(word)
    requests, replies = read_script(path)
    model = ScriptedModel(replies, name=f"scripted: {DEMO if demo else to_printable(path.name)}")
    return Replay(tuple(requests), model, frozenset({"terminal"}) if demo else frozenset())
