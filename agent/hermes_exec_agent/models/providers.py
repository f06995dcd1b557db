"""Providers of models and their differences. Most have OpenAI's chat completions API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

VendorApi = Literal["anthropic", "google", "openai-responses"]


@dataclass(frozen=True, slots=True)
class Provider:
    """A service, or a server program."""

    name: str
    base_url: str
    """The default base URL; empty if it must be configured."""
    key: str = ""
    """The variable of its key, which takes precedence over ``OPENAI_API_KEY``."""
    needs_key: bool = True
    by_key: bool = True
    """Whether its key alone selects it if no provider is configured."""
    own: bool = False
    """Whether it runs on this machine, at no cost."""
    window: int = 128_000
    """Tokens, unless configured."""
    api: VendorApi | Literal["chat"] = "chat"
    """Its API; those other than ``chat`` need the extra ``providers``."""
    newer_limit: bool = False
    """Whether it expects `max_completion_tokens`, and refuses `max_tokens` for newer models."""


def _own(name: str, port: int) -> Provider:
    return Provider(name, f"http://127.0.0.1:{port}/v1", needs_key=False, own=True, window=32_768)


PROVIDERS = {
    each.name: each
    for each in (
        Provider("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", newer_limit=True),
        Provider("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        Provider("nous", "https://inference-api.nousresearch.com/v1", "NOUS_API_KEY"),
        Provider("deepseek", "https://api.deepseek.com", "DEEPSEEK_API_KEY", by_key=False),
        Provider("gemini", "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY", by_key=False),
        Provider(
            "anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", by_key=False, window=200_000, api="anthropic"
        ),
        Provider(
            "google",
            "https://generativelanguage.googleapis.com",
            "GEMINI_API_KEY",
            by_key=False,
            window=1_000_000,
            api="google",
        ),
        Provider(
            "openai-responses", "https://api.openai.com/v1", "OPENAI_API_KEY", by_key=False, api="openai-responses"
        ),
        Provider("wisgate", "https://api.wisgate.ai/v1", "WISGATE_API_KEY"),
        _own("vllm", 8000),
        _own("sglang", 30_000),
        _own("llama.cpp", 8080),
        _own("ollama", 11_434),
        Provider("custom", "", needs_key=False, window=32_768),
    )
}
_OTHER_WORDS = {"llamacpp": "llama.cpp", "llama-cpp": "llama.cpp", "llama_cpp": "llama.cpp", "nous-portal": "nous"}


def is_base_url(text: str) -> bool:
    """Whether a text is the address of a web service, without a password in it."""
    try:
        parts = urlsplit(text)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # invalid brackets or port
        return False
    return is_address and not (parts.username or parts.password) and text.isprintable() and " " not in text


def find_provider(word: str) -> Provider | None:
    """Return the provider that a person means, or None."""
    spoken = word.strip().lower()
    return PROVIDERS.get(_OTHER_WORDS.get(spoken, spoken))
