"""Fields of requests that concern reasoning, which differ between endpoints.

An endpoint receives its own messages unchanged. Of other messages it receives the fields of the protocol, and those
that it documents for messages of other models.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hermes_exec_agent.models.messages import Message

Effort = Literal["minimal", "low", "medium", "high", "xhigh", "max"]
EFFORTS: tuple[Effort, ...] = get_args(Effort)
Thinking = Literal["on", "off"]

_LEFT_OUT = "[The images of this message are left out, as this model takes none.]"
_DUMMY_SIGNATURE = "skip_thought_signature_validator"
"""Gemini's documented value for calls by another model."""
_UNSIGNED = re.compile(r"(?:.*/)?gemini-[12](?:\D|$)")
"""Gemini models that need no signatures."""
_FIELD = re.compile(r"\breasoning\b|reasoning_content|reasoning_details|extra_content")
_UNKNOWN = re.compile(
    r"un(?:supported|known|expected|recogni[sz]ed)|not (?:supported|permitted|allowed)|cannot find", re.IGNORECASE
)
_MISSING = re.compile(r"reasoning_content.*(?:passed back|missing)|missing.*reasoning_content", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reasoning:
    """How much a model should reason; None leaves it to the endpoint."""

    effort: Effort | None = None
    thinking: Thinking | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """The reasoning fields of one kind of endpoint."""

    name: str
    ask: Callable[[Reasoning], dict[str, Any]]
    """Returns the request fields for these settings."""
    fill: Callable[[dict[str, Any], bool, str, Reasoning], None] | None = None
    """Adds required fields to an assistant's message, given whether the endpoint wrote it, the model and the
    settings."""
    returns: bool = True
    """Whether the endpoint accepts the extra fields of its own messages."""


def _ask_openai(reasoning: Reasoning) -> dict[str, Any]:
    effort = "none" if reasoning.thinking == "off" else reasoning.effort
    return {"reasoning_effort": effort} if effort else {}


def _ask_deepseek(reasoning: Reasoning) -> dict[str, Any]:
    fields: dict[str, Any] = {"reasoning_effort": reasoning.effort} if reasoning.effort else {}
    if reasoning.thinking:
        fields["thinking"] = {"type": "enabled" if reasoning.thinking == "on" else "disabled"}
    return fields


def _ask_openrouter(reasoning: Reasoning) -> dict[str, Any]:
    effort = "none" if reasoning.thinking == "off" else reasoning.effort
    if effort:
        return {"reasoning": {"effort": effort}}
    return {"reasoning": {"enabled": True}} if reasoning.thinking else {}


def _ask_template(reasoning: Reasoning) -> dict[str, Any]:
    fields: dict[str, Any] = {"reasoning_effort": reasoning.effort} if reasoning.effort else {}
    if reasoning.thinking:
        # Chat templates use one of these names and ignore the other.
        on = reasoning.thinking == "on"
        fields["chat_template_kwargs"] = {"enable_thinking": on, "thinking": on}
    return fields


def _ask_llama_cpp(reasoning: Reasoning) -> dict[str, Any]:
    fields = _ask_template(reasoning)
    if effort := fields.pop("reasoning_effort", None):
        fields.setdefault("chat_template_kwargs", {})["reasoning_effort"] = effort
    return fields


def _fill_deepseek(message: dict[str, Any], own: bool, model: str, reasoning: Reasoning) -> None:  # noqa: ARG001, FBT001  its shape
    if reasoning.thinking != "off":
        message.setdefault("reasoning_content", "")


def _fill_gemini(message: dict[str, Any], own: bool, model: str, reasoning: Reasoning) -> None:  # noqa: ARG001, FBT001  its shape
    calls = message.get("tool_calls")
    if calls and not own and not _UNSIGNED.match(model):
        # Only the first of several calls in one reply is signed.
        calls[0]["extra_content"] = {"google": {"thought_signature": _DUMMY_SIGNATURE}}


OPENAI = Dialect("openai", _ask_openai)
DEEPSEEK = Dialect("deepseek", _ask_deepseek, _fill_deepseek)
GEMINI = Dialect("gemini", _ask_openai, _fill_gemini)
OPENROUTER = Dialect("openrouter", _ask_openrouter)
TEMPLATE = Dialect("template", _ask_template)
LLAMA_CPP = Dialect("llama.cpp", _ask_llama_cpp)

_PROVIDERS = {
    "deepseek": DEEPSEEK,
    "gemini": GEMINI,
    "openrouter": OPENROUTER,
    "vllm": TEMPLATE,
    "sglang": TEMPLATE,
    "llama.cpp": LLAMA_CPP,
}
_HOSTS = {
    "api.deepseek.com": DEEPSEEK,
    "generativelanguage.googleapis.com": GEMINI,
    "openrouter.ai": OPENROUTER,
}


def find_dialect(provider: str, base_url: str) -> Dialect:
    """Return the dialect of an endpoint; a known host takes precedence over the provider."""
    return _HOSTS.get(urlsplit(base_url).hostname or "") or _PROVIDERS.get(provider, OPENAI)


def adapt_dialect(dialect: Dialect, refusal: str) -> Dialect | None:
    """Return a dialect without the field that an endpoint refuses, or None if the refusal is about something else.

    A gateway may differ from what its address suggests: it may require ``reasoning_content`` in every message, or send
    fields that it does not accept.
    """
    if not dialect.returns:
        return None
    if _MISSING.search(refusal):
        return replace(dialect, fill=_fill_deepseek) if dialect.fill is None else None
    if _FIELD.search(refusal) and _UNKNOWN.search(refusal):
        return replace(dialect, returns=False, fill=None)
    return None


def wire_messages(
    messages: Sequence[Message],
    dialect: Dialect,
    *,
    origin: str,
    model: str,
    reasoning: Reasoning,
    vision: bool = False,
) -> list[dict[str, Any]]:
    """Return the messages in the form that the endpoint ``origin`` accepts; images only with ``vision``."""
    wired: list[dict[str, Any]] = []
    given_ids: dict[str, str] = {}
    for message in messages:
        fields = message.to_wire()
        if message.images and not vision:
            fields["content"] = f"{message.content}\n\n{_LEFT_OUT}"
        if message.role == "assistant":
            own = bool(origin) and message.origin == origin and dialect.returns
            given_ids = _restore(message, fields) if own else {}
            if dialect.fill is not None:
                dialect.fill(fields, own, model, reasoning)
        elif message.role == "tool":
            fields["tool_call_id"] = given_ids.get(message.tool_call_id, message.tool_call_id)
        wired.append(fields)
    return wired


def _restore(message: Message, fields: dict[str, Any]) -> dict[str, str]:
    """Restore an endpoint's own message; return its ids for calls that were renamed here."""
    fields.update(message.extras)
    calls = message.tool_calls
    ids = [call.given_id or call.id for call in calls]
    distinct = len(set(ids)) == len(ids)
    for call, wired, id in zip(calls, fields.get("tool_calls", ()), ids, strict=False):
        wired.update(call.extras)
        if distinct:
            wired["id"] = id
    return {call.id: id for call, id in zip(calls, ids, strict=True)} if distinct else {}
