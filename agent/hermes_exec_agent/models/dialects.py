"""The fields of reasoning in requests, which differ from endpoint to endpoint.

An endpoint gets its own messages back as they came. Of all other messages it gets the protocol's fields, and the fields
that it documents for messages that are not its own.
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

_DUMMY_SIGNATURE = "skip_thought_signature_validator"
"""Gemini's own value for calls that another model made."""
_UNSIGNED = re.compile(r"(?:.*/)?gemini-[12](?:\D|$)")
"""Models of Gemini that want no signatures."""
_FIELD = re.compile(r"\breasoning\b|reasoning_content|reasoning_details|extra_content")
_UNKNOWN = re.compile(
    r"un(?:supported|known|expected|recogni[sz]ed)|not (?:supported|permitted|allowed)|cannot find", re.IGNORECASE
)
_MISSING = re.compile(r"reasoning_content.*(?:passed back|missing)|missing.*reasoning_content", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reasoning:
    """How much a model is asked to think; None leaves it to the endpoint."""

    effort: Effort | None = None
    thinking: Thinking | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one kind of endpoint speaks of reasoning."""

    name: str
    ask: Callable[[Reasoning], dict[str, Any]]
    """The fields of a request that ask for so much of it."""
    fill: Callable[[dict[str, Any], bool, str, Reasoning], None] | None = None
    """Add what the endpoint requires of an assistant's message, given whether it is the endpoint's own, the model, and
    what is asked for."""
    returns: bool = True
    """Whether the endpoint takes the extras of its own messages."""


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
        # Templates call it by one of these names, and pass over the other.
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
        # Of calls that are made together only the first one is signed.
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
    """The dialect of an endpoint: a known host decides before the provider."""
    return _HOSTS.get(urlsplit(base_url).hostname or "") or _PROVIDERS.get(provider, OPENAI)


def heed(dialect: Dialect, refusal: str) -> Dialect | None:
    """The dialect that avoids what an endpoint refuses in these words; None if they are about something else.

    A gateway may speak otherwise than its address tells: it requires ``reasoning_content`` of every message, or sends
    fields that it does not take.
    """
    if not dialect.returns:
        return None
    if _MISSING.search(refusal):
        return replace(dialect, fill=_fill_deepseek) if dialect.fill is None else None
    if _FIELD.search(refusal) and _UNKNOWN.search(refusal):
        return replace(dialect, returns=False, fill=None)
    return None


def wire_messages(
    messages: Sequence[Message], dialect: Dialect, *, origin: str, model: str, reasoning: Reasoning
) -> list[dict[str, Any]]:
    """The messages as the endpoint ``origin`` gets them."""
    wired: list[dict[str, Any]] = []
    given_ids: dict[str, str] = {}
    for message in messages:
        fields = message.wire()
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
    """Make an endpoint's own message what it was; gives the endpoint's ids of calls that have another one here."""
    fields.update(message.extras)
    calls = message.tool_calls
    ids = [call.given_id or call.id for call in calls]
    distinct = len(set(ids)) == len(ids)
    for call, wired, id in zip(calls, fields.get("tool_calls", ()), ids, strict=False):
        wired.update(call.extras)
        if distinct:
            wired["id"] = id
    return {call.id: id for call, id in zip(calls, ids, strict=True)} if distinct else {}
