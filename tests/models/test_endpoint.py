"""Asking a model over HTTP, and every way in which that goes wrong."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest

from hermes_exec.config.secrets import Secret
from hermes_exec.errors import Unsupported
from hermes_exec_agent.errors import ContextTooLong, ModelError, ModelRefused
from hermes_exec_agent.models import ask, complete, say
from hermes_exec_agent.models.endpoint import Endpoint, Patience
from hermes_exec_agent.models.messages import Message
from hermes_exec_agent.models.protocol import Item, Price, Reply, Retried, Text, ToolSpec
from tests.rigs.endpoint import KEY, Raw, ScriptedEndpoint, Status, Streamed, Written

HELLO = (Message("user", "hello"),)
LS = ToolSpec("terminal", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}})
SOON = Patience(first_wait_s=0.01)
UMLAUTS = "Grüße — 你好 👋"


async def asked(rig: ScriptedEndpoint, patience: Patience = SOON, **options: Any) -> list[Item]:
    """All that one request gives."""
    model = Endpoint("m", base_url=rig.url, key=Secret("OPENAI_API_KEY", KEY), patience=patience)
    try:
        return [item async for item in model.stream(HELLO, **options)]
    finally:
        await model.close()


def reply_of(*answers: Written, patience: Patience = SOON, **options: Any) -> Reply:
    """The reply to a request that is answered by these."""
    with ScriptedEndpoint(answers) as rig:
        last = asyncio.run(asked(rig, patience, **options))[-1]
        assert isinstance(last, Reply)
        assert not rig.complaints
        return last


def error_of(*answers: Written, patience: Patience = SOON) -> ModelError:
    """How a request fails that is answered by these."""
    with ScriptedEndpoint(answers, forever=True) as rig, pytest.raises(ModelError) as caught:
        asyncio.run(asked(rig, patience))
    return caught.value


def test_text_comes_in_pieces_and_then_as_a_whole() -> None:
    with ScriptedEndpoint([say(UMLAUTS)]) as rig:
        *pieces, last = asyncio.run(asked(rig))
    assert len(pieces) > 1
    assert "".join(piece.text for piece in pieces if isinstance(piece, Text)) == UMLAUTS
    assert isinstance(last, Reply)
    assert (last.message, last.finish) == (Message("assistant", UMLAUTS), "stop")


def test_a_stream_cut_at_every_byte_is_the_same_reply() -> None:
    calls = ask(("terminal", {"command": UMLAUTS}), ("read_file", {"path": "a"}), text=UMLAUTS)
    assert reply_of(Streamed(calls, piece=1)).message == calls.message


@pytest.mark.parametrize("piece", [2, 3, 7, 64])
def test_the_size_of_the_pieces_does_not_matter(piece: int) -> None:
    calls = ask(("terminal", {"command": UMLAUTS}), text=UMLAUTS)
    assert reply_of(Streamed(calls, piece=piece)).message == calls.message


@pytest.mark.parametrize("shape", ["whole", "object", "no index", "no id"])
def test_calls_are_put_together_however_an_endpoint_cuts_them(shape: str) -> None:
    reply = reply_of(Streamed(ask(("a", {"x": 1}), ("b", {"y": 2}), ("b", {"y": 3})), shape=shape))
    got = [(call.name, json.loads(call.arguments)) for call in reply.message.tool_calls]
    assert got == [("a", {"x": 1}), ("b", {"y": 2}), ("b", {"y": 3})]
    assert len({call.id for call in reply.message.tool_calls}) == 3
    assert all(call.id for call in reply.message.tool_calls)


def test_calls_count_as_calls_though_the_endpoint_says_stop() -> None:
    assert reply_of(Streamed(ask(("a", {})), finish="stop")).finish == "tool_calls"


def test_malformed_arguments_are_given_as_they_came() -> None:
    (call,) = reply_of(ask(("terminal", '{"command": "ls'))).message.tool_calls
    assert call.arguments == '{"command": "ls'


def test_what_is_sent_is_in_the_form_of_the_protocol() -> None:
    schema = {"type": "object"}
    with ScriptedEndpoint(["ok"]) as rig:
        asyncio.run(asked(rig, tools=[LS], max_tokens=9, schema=schema))
    (sent,) = rig.requests
    assert sent["messages"] == [{"role": "user", "content": "hello"}]
    assert sent["tools"] == [LS.to_wire()]
    assert sent["max_tokens"] == 9
    assert sent["response_format"]["json_schema"]["schema"] == schema
    assert rig.headers[0]["authorization"] == f"Bearer {KEY}"


def test_usage_and_cost_are_the_endpoints_own_figures() -> None:
    usage = {
        "prompt_tokens": 1000, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 900}, "cost": 0.25,
    }  # fmt: skip
    reply = reply_of(Streamed(say("x"), usage=usage))
    told = reply.usage
    assert (told.prompt, told.cached, told.completion, told.cost, told.estimated) == (1000, 900, 10, 0.25, False)


def test_a_known_price_gives_the_cost() -> None:
    async def cost(url: str) -> float | None:
        model = Endpoint("m", base_url=url, price=Price(2.0, 10.0, cached=0.5))
        try:
            return (await complete(model, HELLO)).usage.cost
        finally:
            await model.close()

    usage = {"prompt_tokens": 3_000_000, "completion_tokens": 100_000,
             "prompt_tokens_details": {"cached_tokens": 2_000_000}}  # fmt: skip
    with ScriptedEndpoint([Streamed(say("x"), usage=usage)]) as rig:
        assert asyncio.run(cost(rig.url)) == pytest.approx(2.0 + 1.0 + 1.0)


def test_tokens_are_estimated_where_the_endpoint_counts_none() -> None:
    usage = reply_of(Streamed(say("x" * 400), usage=None)).usage
    assert usage.estimated
    assert usage.completion > 90
    assert usage.cost is None


@pytest.mark.parametrize("code", [408, 409, 429, 500, 502, 503, 529])
def test_what_may_pass_is_asked_again(code: int) -> None:
    assert reply_of(Status(code, {"error": {"message": "busy"}}), "at last").message.content == "at last"


def test_a_sequence_of_different_failures_is_survived_and_told() -> None:
    failures = (
        Status(429, {}),
        Status(500, b"<html>"),
        Streamed(say("half of it"), cut=120),
        Raw(b"data: {nonsense\n\n"),
    )
    with ScriptedEndpoint([*failures, "whole"]) as rig:
        items = asyncio.run(asked(rig))
    assert len([item for item in items if isinstance(item, Retried)]) == 4
    after = items[max(i for i, item in enumerate(items) if isinstance(item, Retried)) + 1 : -1]
    assert "".join(item.text for item in after if isinstance(item, Text)) == "whole"


@pytest.mark.parametrize(
    "headers",
    [{"retry-after": "0.5"}, {"retry-after-ms": "500"}, {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}],
)
def test_the_wait_that_the_endpoint_asks_for_is_kept(headers: dict[str, str]) -> None:
    with ScriptedEndpoint([Status(429, {}, headers), "ok"]) as rig:
        (retried,) = [item for item in asyncio.run(asked(rig)) if isinstance(item, Retried)]
    assert retried.wait_s == (0.0 if "GMT" in headers.get("retry-after", "") else 0.5)


def test_a_wait_beyond_the_bound_is_not_begun() -> None:
    error = error_of(Status(429, {"error": {"message": "slow down"}}, {"retry-after": "3600"}))
    assert "asks to wait 3600 s; given up after 1 attempt." in str(error)
    assert "slow down" in str(error)


def test_attempts_are_bounded() -> None:
    with ScriptedEndpoint([Status(503, {})], forever=True) as rig, pytest.raises(ModelError, match="asked 3 times"):
        asyncio.run(asked(rig, Patience(attempts=3, first_wait_s=0.01)))
    assert len(rig.requests) == 3


@pytest.mark.parametrize("code", [400, 401, 402, 403, 404, 422])
def test_what_will_not_pass_is_asked_once(code: int) -> None:
    with ScriptedEndpoint([Status(code, {"error": {"message": "no"}})]) as rig, pytest.raises(ModelRefused):
        asyncio.run(asked(rig))
    assert len(rig.requests) == 1


def test_no_credit_is_not_taken_for_a_rate_limit() -> None:
    error = error_of(Status(429, {"error": {"message": "quota", "code": "insufficient_quota"}}))
    assert isinstance(error, ModelRefused)
    assert "credit" in error.remedy


@pytest.mark.parametrize(("path", "said"), [("", "/v1 as its base URL"), ("/v1", "in DEFAULT_MODEL; and its base URL")])
def test_an_address_without_its_path_is_told_what_it_lacks(path: str, said: str) -> None:
    async def ask(url: str) -> Reply:
        model = Endpoint("m", base_url=url)
        try:
            return await complete(model, HELLO)
        finally:
            await model.close()

    with (
        ScriptedEndpoint([Status(404, b"404 page not found.")]) as rig,
        pytest.raises(ModelRefused, match=r"404 page not found\. Try: .*" + said),
    ):
        asyncio.run(ask(rig.url.removesuffix("/v1") + path))


def test_an_answer_without_a_word_is_told_by_its_number() -> None:
    assert str(error_of(Status(403, b""))).startswith("m: it answered 403. Try: ")


def test_a_web_page_is_told_as_such_and_asked_once() -> None:
    with ScriptedEndpoint([Status(200, b"<html>Please log in.</html>", {"content-type": "text/html"})]) as rig:
        with pytest.raises(ModelRefused, match="a web page instead of a reply"):
            asyncio.run(asked(rig))
        assert len(rig.requests) == 1


@pytest.mark.parametrize(
    ("body", "window"),
    [
        ({"error": {"message": "This model's maximum context length is 8192 tokens. However…",
                    "code": "context_length_exceeded"}}, 8192),
        ({"error": {"message": "the request exceeds the available context size", "type": "exceed_context_size_error"}},
         None),
        ({"object": "error", "message": "prompt is too long"}, None),
    ],
)  # fmt: skip
def test_a_conversation_that_does_not_fit_is_told_apart(body: dict[str, Any], window: int | None) -> None:
    error = error_of(Status(400, body))
    assert isinstance(error, ContextTooLong)
    assert error.window == window


def test_an_error_in_the_middle_of_a_stream_is_asked_again() -> None:
    broken = Raw(
        b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\ndata: {"error":{"message":"overloaded"}}\n\n'
    )
    assert reply_of(broken, "ok").message.content == "ok"


@pytest.mark.parametrize(
    "body",
    [b"", b"data: [DONE]\n\n", b"data: {}\n\n", b"data: 7\n\n", b'data: {"choices": 3}\n\n', b"\xff\xfe\n\n",
     b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"arguments":7}}]}}]}\n\n',
     b'data: {"choices":[{"index":0,"delta":null,"finish_reason":null}]}\n\n'],
)  # fmt: skip
def test_no_garbage_is_taken_for_a_reply(body: bytes) -> None:
    assert reply_of(Raw(body), "ok").message.content == "ok"


def test_a_reply_that_breaks_off_after_its_last_piece_is_whole() -> None:
    assert reply_of(Streamed(say("all of it"), done=False)).message.content == "all of it"


def test_a_silent_endpoint_is_given_up() -> None:
    error = error_of(Streamed(say("x"), hang=0), patience=Patience(attempts=2, silence_s=0.2, first_wait_s=0.01))
    assert "silent for too long" in str(error)


def test_the_bound_holds_for_a_stream_that_goes_on() -> None:
    with ScriptedEndpoint([Streamed(say("x"), hang=100)], forever=True) as rig, pytest.raises(ModelError):
        asyncio.run(asked(rig, Patience(total_s=0.5, silence_s=600)))


def test_a_cancelled_request_lets_go_of_the_connection() -> None:
    async def cancel(rig: ScriptedEndpoint) -> None:
        task = asyncio.create_task(asked(rig, Patience()))
        await asyncio.to_thread(rig.asked.acquire)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with ScriptedEndpoint([Streamed(say("x"), hang=80)]) as rig:
        asyncio.run(cancel(rig))
        assert rig.left.wait(30)


def test_nobody_there_is_said_plainly() -> None:
    with ScriptedEndpoint([]) as rig:
        url = rig.url

    async def ask_nobody() -> Reply:
        model = Endpoint("m", base_url=url, patience=Patience(attempts=2, first_wait_s=0.01))
        try:
            return await complete(model, HELLO)
        finally:
            await model.close()

    with pytest.raises(ModelError, match=f"the connection failed: .* that {url.removesuffix('/v1')} is running"):
        asyncio.run(ask_nobody())


def test_the_key_is_in_no_error_and_no_repr() -> None:
    told = f"Incorrect API key provided: {KEY}. \x1b[31m"
    error = error_of(Status(401, {"error": {"message": told}}))
    assert KEY not in str(error)
    assert "\x1b" not in str(error)
    assert KEY not in repr(Endpoint("m", base_url="http://x/v1", key=Secret("K", KEY)))
    assert error.__cause__ is None


def test_what_cannot_be_prepared_is_told_by_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    model = Endpoint("m", base_url="http://127.0.0.1:9/v1")
    model.prepare()
    with pytest.raises(Unsupported, match="pip install"):
        asyncio.run(complete(model, [Message("user", "hello")]))
