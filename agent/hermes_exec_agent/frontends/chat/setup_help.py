"""The text that is shown without a model: the settings that were tried, and instructions to set one up."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_WAYS = """
Set one up:
  A hosted model:    export OPENAI_API_KEY=…            (from a secret store, to keep it out of the history)
                     export DEFAULT_MODEL=gpt-5-mini
  Another provider:  export LLM_PROVIDER=openrouter     (nous, wisgate, …) and its own key
  Your own server:   export LLM_PROVIDER=ollama         (vllm, sglang, llama.cpp) and DEFAULT_MODEL; no key
  In a file:         [models.main] of hermes.toml, where a key is named and never written: docs/models.md

Or see the agent at work with scripted replies:
  hermes-exec chat --replay demo

All other commands work without a model: hermes-exec --help
"""


def format_setup_help(why: str, looked_for: Sequence[str]) -> str:
    """Return the text, which contains no secret."""
    looked = "\n".join(f"  {each}" for each in looked_for)
    found = f"\nLooked for:\n{looked}\n" if looked else ""
    return f"{why[:1].upper()}{why[1:]}\n{found}{_WAYS}"
