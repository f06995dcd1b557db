"""What real endpoints of five kinds give beside the protocol's fields, and which requests they refuse, in their words.

Their words are those that people quote from the services. Each also notices what the real one may let pass: that what
it gave does not come back as it was, or that it gets what another one gave.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from hermes_exec_agent.models import say
from hermes_exec_agent.models.protocol import Reply
from tests.rigs.endpoint import Status, Streamed

if TYPE_CHECKING:
    from hermes_exec_agent.models.messages import Message
    from tests.rigs.endpoint import Answer

_FIELDS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}
_REQUEST = {"model", "messages", "stream", "stream_options", "tools", "tool_choice", "max_tokens", "response_format"}


class Strict:
    """One kind of endpoint. ``given`` has what it gave, by the id of the message's first call, or else by its text."""

    provider: ClassVar[str]
    model: ClassVar[str] = "m"
    usage: ClassVar[dict[str, Any]] = {
        "prompt_tokens": 100, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 4},
    }  # fmt: skip
    shape: ClassVar[str] = "pieces"
    finish: ClassVar[str] = "as the reply"

    def __init__(self) -> None:
        self.given: dict[str, dict[str, Any]] = {}
        self.secrets: list[str] = []
        """Pieces of what it gave: no other endpoint may read them."""

    def give(self, answer: Answer) -> Answer:
        """The answer with what this kind of endpoint sends beside it."""
        streamed = answer if isinstance(answer, Streamed) else None
        reply = streamed.reply if streamed else say(answer) if isinstance(answer, str) else answer
        if not isinstance(reply, Reply):
            return answer
        thought = f"{self.provider}-thought-{len(self.secrets) + 1}"
        message = self.sign(reply.message, thought)
        if message is not reply.message:
            self.secrets.append(thought)
        wired = {**message.to_wire(), **message.extras}
        for call, fields in zip(message.tool_calls, wired.get("tool_calls", ()), strict=False):
            fields.update(call.extras)
        self.given[_key(wired)] = wired
        given = streamed or Streamed(reply, shape=self.shape, finish=self.finish)
        return replace(given, reply=replace(reply, message=message), usage=self.usage)

    def sign(self, message: Message, thought: str) -> Message:
        """The message with what is sent beside it."""
        return replace(message, extras={"reasoning_content": f"{thought}: grüße, I look first"})

    def refuse(self, body: dict[str, Any]) -> Status | None:
        """The answer to a request that it refuses."""
        for number, message in enumerate(body["messages"]):
            if message["role"] == "assistant" and (given := self.given.get(_key(message))) not in (None, message):
                return _refusal(f"message {number} is not what was given: {json.dumps([given, message])}")
        return self.wrong(body)

    def wrong(self, body: dict[str, Any]) -> Status | None:
        """The same, in the words of the real one."""
        raise NotImplementedError


class DeepSeek(Strict):
    """Refuses an assistant's message without ``reasoning_content`` where tools are offered and it thinks."""

    provider = "deepseek"

    def wrong(self, body: dict[str, Any]) -> Status | None:
        """See `Strict`."""
        thinks = body.get("thinking", {}).get("type") != "disabled" and body.get("tools")
        if thinks and not all(isinstance(each.get("reasoning_content"), str) for each in _assistants(body)):
            return _refusal(
                "The `reasoning_content` in the thinking mode must be passed back to the API.",
                param=None,
                code="invalid_request_error",
            )
        return None


class Gemini(Strict):
    """Refuses a step of the running turn whose first call has no signature, a wrong one, and unknown fields."""

    provider = "gemini"
    model = "gemini-3-pro"
    shape = "index 0"
    finish = "stop"

    def sign(self, message: Message, thought: str) -> Message:
        """Of calls that are made together only the first one is signed."""
        signature = {"google": {"thought_signature": f"{thought}+/AbC=="}}
        if not message.tool_calls:
            return replace(message, extras={"extra_content": signature})
        first, *others = message.tool_calls
        return replace(message, tool_calls=(replace(first, extras={"extra_content": signature}), *others))

    def wrong(self, body: dict[str, Any]) -> Status | None:
        """See `Strict`."""
        known = {each["extra_content"]["google"]["thought_signature"] for each in _nested(self.given)}
        known.add("skip_thought_signature_validator")
        last = max(number for number, each in enumerate(body["messages"]) if each["role"] == "user")
        for number, message in enumerate(body["messages"]):
            for name in message.keys() - _FIELDS[message["role"]] - {"extra_content"}:
                return _google(f"Invalid JSON payload received. Unknown name \"{name}\" at 'messages[{number}]': Cannot"
                               " find field.")  # fmt: skip
            calls = message.get("tool_calls")
            if not calls or number < last:
                continue
            signature = calls[0].get("extra_content", {}).get("google", {}).get("thought_signature")
            if signature is None:
                return _google(
                    "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                    "work correctly, and missing thought_signature may lead to degraded model performance. Additional "
                    f"data, function call `default_api:{calls[0]['function']['name']}` , position {number}. Please "
                    "refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
                )
            if signature not in known:
                return _google("Corrupted thought signature.")
        return None


class OpenRouter(Strict):
    """Refuses details of reasoning that it did not give as they are, and calls of its own without them."""

    provider = "openrouter"

    def sign(self, message: Message, thought: str) -> Message:
        """Several entries: a signed text, a summary, and one that is encrypted and belongs to a call."""
        entries: list[dict[str, Any]] = [
            {"type": "reasoning.text", "text": f"{thought}: I look", "format": "anthropic-claude-v1", "index": 0,
             "signature": f"{thought}+/sig=="},
            {"type": "reasoning.summary", "summary": "I look first", "format": "openai-responses-v1", "index": 1},
        ]  # fmt: skip
        if message.tool_calls:
            entries.append({"type": "reasoning.encrypted", "data": f"{thought}//xyz==", "id": message.tool_calls[0].id,
                            "format": "google-gemini-v1", "index": 1})  # fmt: skip
        return replace(message, extras={"reasoning": f"{thought}: I look", "reasoning_details": entries})

    def wrong(self, body: dict[str, Any]) -> Status | None:
        """See `Strict`."""
        for number, message in enumerate(body["messages"]):
            given = self.given.get(_key(message), {})
            if message.get("reasoning_details") == given.get("reasoning_details"):
                continue
            raw = f"messages.{number}.content.0: Invalid `signature` in `thinking` block"
            if not message.get("reasoning_details"):
                raw = "Gemini models require OpenRouter reasoning details to be preserved in each request."
            error = {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw}}
            return Status(400, {"error": error, "user_id": "user_1"})
        return None


class Vllm(Strict):
    """vLLM and SGLang with a reasoning parser: refuse fields of the wrong type."""

    provider = "vllm"

    def sign(self, message: Message, thought: str) -> Message:
        """See `Strict`."""
        return replace(message, extras={"reasoning": f"{thought}: grüße, I look first"})

    def wrong(self, body: dict[str, Any]) -> Status | None:
        """See `Strict`."""
        wrong = [each for each in _assistants(body) if not isinstance(each.get("reasoning", ""), str)]
        if wrong or not isinstance(body.get("chat_template_kwargs", {}), dict):
            message = (
                "[{'type': 'string_type', 'loc': ('body', 'messages', 'reasoning'), 'msg': 'Input should be valid'}]"
            )
            return Status(400, {"object": "error", "message": message, "type": "BadRequestError", "code": 400})
        return None


class Groq(Strict):
    """Groq and its like: gives nothing beside, and refuses every field that it does not know."""

    provider = "custom"

    def sign(self, message: Message, thought: str) -> Message:
        """As it is."""
        return message

    def wrong(self, body: dict[str, Any]) -> Status | None:
        """See `Strict`."""
        for name in body.keys() - _REQUEST:
            return _refusal(f"property '{name}' is unsupported")
        for number, message in enumerate(body["messages"]):
            role = message["role"]
            unknown = message.keys() - _FIELDS[role]
            unknown |= {
                key for call in message.get("tool_calls", ()) for key in call.keys() - {"id", "type", "function"}
            }
            for name in unknown:
                return _refusal(f"'messages.{number}' : for 'role:{role}' the following must be satisfied[('messages."
                                f"{number}' : property '{name}' is unsupported)]")  # fmt: skip
        return None


KINDS: tuple[type[Strict], ...] = (DeepSeek, Gemini, OpenRouter, Vllm, Groq)


def _key(message: dict[str, Any]) -> str:
    calls = message.get("tool_calls")
    return f"{message['role']} {calls[0]['id'] if calls else message['content']}"


def _assistants(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in body["messages"] if each["role"] == "assistant"]


def _nested(given: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    found = [*given.values(), *(call for each in given.values() for call in each.get("tool_calls", ()))]
    return [each for each in found if "extra_content" in each]


def _refusal(message: str, **more: object) -> Status:
    return Status(400, {"error": {"message": message, "type": "invalid_request_error", **more}})


def _google(message: str) -> Status:
    return Status(400, [{"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}])
