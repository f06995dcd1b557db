"""A server that answers as Anthropic's, Gemini's and OpenAI's Responses API do, streamed and whole, faults included.

It is as strict about requests as they are: a call without its result, a result without its call, a signature that it
did not write, or one that is missing, is answered with 400 and kept in ``complaints``.
"""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Api = Literal["anthropic", "google", "openai-responses"]
APIS: tuple[Api, ...] = ("anthropic", "google", "openai-responses")
KEY = "sk-rig-0123456789abcdefABCDEF"
MODELS: dict[Api, str] = {"anthropic": "claude-opus-4-1", "google": "gemini-3-pro-preview", "openai-responses": "gpt-5"}
SIGNATURE = base64.b64encode(b"signed by the rig").decode()
PROMPT, CACHED, COMPLETION, REASONING = 100, 80, 27, 20
"""Tokens that each reply counts: the prompt, those of it from a cache, the reply, and its thought."""


@dataclass(frozen=True)
class Said:
    """A reply, and what goes wrong on its way."""

    text: str = ""
    thought: str = ""
    calls: Sequence[tuple[str, dict[str, Any]]] = ()
    end: Literal["stop", "length", "filter"] = "stop"
    cut: int | None = None
    """Events after which the connection is broken off."""
    short: int | None = None
    """Events after which the stream ends in good order."""
    hang: int | None = None
    """Events after which nothing comes until the client has left."""
    fails: int | None = None
    """Events after which an event reports that the service is overloaded."""


@dataclass(frozen=True)
class Refused:
    """An answer with another status than 200."""

    status: int
    message: str
    kind: str = "invalid_request_error"
    headers: tuple[tuple[str, str], ...] = ()


Written = Said | Refused | bytes


class Vendor:
    """Answers requests with ``answers``, one after another; the last one again and again."""

    def __init__(self, api: Api, answers: Iterable[Written]) -> None:
        self.api: Api = api
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.complaints: list[str] = []
        self.left = asyncio.Event()
        """Set when the client of a hanging answer has gone."""
        self._answers = list(answers)
        self._number = 0

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.origin = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self.url = f"{self.origin}/v1" if self.api == "openai-responses" else self.origin
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        complaint = self._find_complaint(request, body)
        if complaint:
            self.complaints.append(complaint)
            answer = Refused(400, complaint)
        if isinstance(answer, bytes):
            return web.Response(body=answer, content_type="text/html")
        if isinstance(answer, Refused):
            return web.json_response(_to_error(self.api, answer), status=answer.status, headers=dict(answer.headers))
        self._number += 1
        whole, events = _RENDER[self.api](answer, self._number, MODELS[self.api])
        streams = "streamGenerateContent" in request.path if self.api == "google" else bool(body.get("stream"))
        if not streams:
            return web.json_response(whole)
        return await self._stream(request, answer, events)

    async def _stream(self, request: web.Request, answer: Said, events: list[dict[str, Any]]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for number, event in enumerate(events):
            if number == answer.cut:
                assert request.transport is not None
                request.transport.abort()
                return response
            if number == answer.short:
                break
            if number == answer.hang:
                try:
                    await asyncio.sleep(600)
                finally:
                    self.left.set()
            if number == answer.fails:
                await response.write(_to_event(self.api, _FAILURES[self.api]))
                break
            await response.write(_to_event(self.api, event))
        await response.write_eof()
        return response

    def _find_complaint(self, request: web.Request, body: dict[str, Any]) -> str:
        sent = request.headers
        if self.api == "anthropic":
            keyed = KEY in (sent.get("x-api-key"), sent.get("authorization", "").removeprefix("Bearer "))
            keyed, path = keyed and "anthropic-version" in sent, "/v1/messages"
        elif self.api == "google":
            method = "streamGenerateContent" if "stream" in request.path else "generateContent"
            keyed, path = sent.get("x-goog-api-key") == KEY, f"/v1beta/models/{MODELS['google']}:{method}"
        else:
            keyed, path = sent.get("authorization") == f"Bearer {KEY}", "/v1/responses"
        if not keyed or request.path != path:
            return "no key" if not keyed else f"no such path: {request.path}"
        return next(_COMPLAIN[self.api](body), "")


def _to_event(api: Api, event: dict[str, Any]) -> bytes:
    name = "" if api == "google" else f"event: {event['type']}\n"
    return f"{name}data: {json.dumps(event)}\n\n".encode()


def _to_error(api: Api, answer: Refused) -> dict[str, Any]:
    if api == "anthropic":
        return {"type": "error", "error": {"type": answer.kind, "message": answer.message}}
    if api == "google":
        return {"error": {"code": answer.status, "message": answer.message, "status": answer.kind}}
    return {"error": {"message": answer.message, "type": answer.kind, "code": answer.kind, "param": None}}


_FAILURES: dict[Api, dict[str, Any]] = {
    "anthropic": {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    "google": {"error": {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}},
    "openai-responses": {
        "type": "error", "code": "server_error", "message": "Overloaded", "param": None, "sequence_number": 99,
    },
}  # fmt: skip


def _cut(text: str) -> list[str]:
    """Cut a text into two pieces, as streams do."""
    half = len(text) // 2
    return [piece for piece in (text[:half], text[half:]) if piece]


# Anthropic

_STOPS = {"stop": "end_turn", "length": "max_tokens", "filter": "refusal"}


def _render_anthropic(said: Said, number: int, model: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    blocks: list[dict[str, Any]] = []
    if said.thought:
        blocks.append({"type": "thinking", "thinking": said.thought, "signature": SIGNATURE})
    if said.text:
        blocks.append({"type": "text", "text": said.text})
    for index, (name, arguments) in enumerate(said.calls):
        blocks.append({"type": "tool_use", "id": f"toolu_{number}_{index}", "name": name, "input": arguments})
    stop = "tool_use" if said.calls and said.end == "stop" else _STOPS[said.end]
    usage = {
        "input_tokens": PROMPT - CACHED - 5, "cache_read_input_tokens": CACHED, "cache_creation_input_tokens": 5,
        "output_tokens": COMPLETION, "output_tokens_details": {"thinking_tokens": REASONING},
    }  # fmt: skip
    whole: dict[str, Any] = {
        "id": f"msg_{number}", "type": "message", "role": "assistant", "model": model, "content": blocks,
        "stop_reason": stop, "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    begun: dict[str, Any] = {**whole, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(blocks):
        events += _stream_block(index, block)
    events.append({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage})
    return whole, [*events, {"type": "message_stop"}]


def _stream_block(index: int, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    empty: dict[str, dict[str, Any]] = {
        "thinking": {"thinking": "", "signature": ""}, "text": {"text": ""}, "tool_use": {"input": {}},
    }  # fmt: skip
    yield {"type": "content_block_start", "index": index, "content_block": block | empty[block["type"]]}
    deltas: list[dict[str, Any]]
    if block["type"] == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _cut(block["thinking"])]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif block["type"] == "text":
        deltas = [{"type": "text_delta", "text": piece} for piece in _cut(block["text"])]
    else:
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in _cut(json.dumps(block["input"]))]
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _complain_anthropic(body: dict[str, Any]) -> Iterator[str]:
    if not isinstance(body.get("max_tokens"), int):
        yield "max_tokens: Field required"
    text = json.dumps(body)
    if text.count('"cache_control"') > 4:
        yield "A maximum of 4 blocks with cache_control may be provided"
    last, open_calls = "", set[str]()
    for message in body["messages"]:
        if message["role"] == last:
            yield "roles must alternate"
        last = message["role"]
        content = message["content"]
        blocks: list[dict[str, Any]] = [{"type": "text"}] if isinstance(content, str) else content
        results = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
        if results != open_calls:
            yield "tool_use ids were found without tool_result blocks immediately after"
        open_calls = {block["id"] for block in blocks if block["type"] == "tool_use"}
        if any(block["signature"] != SIGNATURE for block in blocks if block["type"] == "thinking"):
            yield "Invalid signature in thinking block"
        if open_calls and body.get("thinking", {}).get("type") == "enabled" and blocks[0]["type"] != "thinking":
            yield "Expected `thinking`, but found `tool_use`"


# Gemini

_FINISHES = {"stop": "STOP", "length": "MAX_TOKENS", "filter": "SAFETY"}


def _render_google(said: Said, number: int, model: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    parts: list[dict[str, Any]] = [{"text": said.thought, "thought": True}] if said.thought else []
    parts += [{"text": said.text}] if said.text else []
    pieces = [{**part, "text": piece} for part in parts for piece in _cut(part["text"])]
    calls: list[dict[str, Any]] = []
    for index, (name, arguments) in enumerate(said.calls):
        call: dict[str, Any] = {"functionCall": {"name": name, "args": arguments}}
        calls.append(call if index else call | {"thoughtSignature": SIGNATURE})
    usage = {
        "promptTokenCount": PROMPT, "cachedContentTokenCount": CACHED, "candidatesTokenCount": COMPLETION - REASONING,
        "thoughtsTokenCount": REASONING, "totalTokenCount": PROMPT + COMPLETION,
    }  # fmt: skip

    def chunk(parts: list[dict[str, Any]], finish: str | None) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
        if finish:
            candidate["finishReason"] = finish
        more = {"usageMetadata": usage} if finish else {}
        return {"candidates": [candidate], "modelVersion": model, "responseId": f"resp-{number}", **more}

    finish = _FINISHES[said.end]
    streamed = [chunk([piece], None) for piece in (*pieces, *calls)]
    return chunk([*parts, *calls], finish), [*streamed, chunk([{"text": ""}], finish)]


def _complain_google(body: dict[str, Any]) -> Iterator[str]:
    contents: list[dict[str, Any]] = body["contents"]
    expected: list[str] = []
    for content in contents:
        answered = [part["functionResponse"]["name"] for part in content["parts"] if "functionResponse" in part]
        if answered != expected:
            yield "the number of function response parts is not equal to the number of function call parts"
        calls = [part for part in content["parts"] if "functionCall" in part]
        expected = [part["functionCall"]["name"] for part in calls]
        # A signature of another model is replaced by a value that Google documents.
        known = (SIGNATURE, base64.b64encode(b"skip_thought_signature_validator").decode())
        if calls and calls[0].get("thoughtSignature") not in known:
            yield "Function call is missing a thought_signature in functionCall parts"


# OpenAI's Responses


def _render_responses(said: Said, number: int, model: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    items: list[dict[str, Any]] = []
    if said.thought:
        summary = [{"type": "summary_text", "text": said.thought}]
        items.append({"type": "reasoning", "id": f"rs_{number}", "summary": summary, "encrypted_content": SIGNATURE})
    if said.text:
        content: list[Any] = [{"type": "output_text", "text": said.text, "annotations": []}]
        items.append(
            {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": content}
        )
    for index, (name, arguments) in enumerate(said.calls):
        items.append(
            {
                "type": "function_call", "id": f"fc_{number}_{index}", "call_id": f"call_{number}_{index}",
                "name": name, "arguments": json.dumps(arguments), "status": "completed",
            }
        )  # fmt: skip
    reason = {"stop": None, "length": "max_output_tokens", "filter": "content_filter"}[said.end]
    whole: dict[str, Any] = {
        "id": f"resp_{number}", "object": "response", "created_at": 1_700_000_000, "model": model, "output": items,
        "status": "incomplete" if reason else "completed", "error": None, "parallel_tool_calls": True, "tools": [],
        "incomplete_details": {"reason": reason} if reason else None, "tool_choice": "auto",
        "usage": {
            "input_tokens": PROMPT, "input_tokens_details": {"cached_tokens": CACHED}, "output_tokens": COMPLETION,
            "output_tokens_details": {"reasoning_tokens": REASONING}, "total_tokens": PROMPT + COMPLETION,
        },
    }  # fmt: skip
    begun: dict[str, Any] = {**whole, "output": [], "status": "in_progress", "usage": None, "incomplete_details": None}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(items):
        events += _stream_item(index, item)
    events.append({"type": f"response.{whole['status']}", "response": whole})
    return whole, [{**event, "sequence_number": position} for position, event in enumerate(events)]


def _stream_item(index: int, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    about = {"item_id": item["id"], "output_index": index}
    empty: dict[str, dict[str, Any]] = {
        "reasoning": {"summary": []}, "message": {"content": []}, "function_call": {"arguments": ""},
    }  # fmt: skip
    begun = {**item, **empty[item["type"]], "status": "in_progress"}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    if item["type"] == "reasoning":
        yield {
            "type": "response.reasoning_summary_part.added", **about, "summary_index": 0,
            "part": {"type": "summary_text", "text": ""},
        }  # fmt: skip
        for piece in _cut(item["summary"][0]["text"]):
            yield {"type": "response.reasoning_summary_text.delta", **about, "summary_index": 0, "delta": piece}
    elif item["type"] == "message":
        yield {
            "type": "response.content_part.added", **about, "content_index": 0,
            "part": {"type": "output_text", "text": "", "annotations": []},
        }  # fmt: skip
        for piece in _cut(item["content"][0]["text"]):
            yield {"type": "response.output_text.delta", **about, "content_index": 0, "delta": piece, "logprobs": []}
    else:
        for piece in _cut(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", **about, "delta": piece}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _complain_responses(body: dict[str, Any]) -> Iterator[str]:
    if body.get("store") is not False:
        yield "the rig stores nothing"
    calls: list[str] = []
    results: list[str] = []
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind == "function_call":
            calls.append(item["call_id"])
        elif kind == "function_call_output":
            results.append(item["call_id"])
        elif kind == "reasoning" and item.get("encrypted_content") != SIGNATURE:
            yield "The encrypted content could not be verified"
    if sorted(calls) != sorted(results):
        yield "No tool output found for function call"


_RENDER = {"anthropic": _render_anthropic, "google": _render_google, "openai-responses": _render_responses}
_COMPLAIN = {"anthropic": _complain_anthropic, "google": _complain_google, "openai-responses": _complain_responses}
