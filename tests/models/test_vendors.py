"""Vendors' own APIs, asked by their own SDKs."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.config.secrets import Secret
from hermes_exec_agent.errors import ContextTooLong, ModelError, ModelRefused
from hermes_exec_agent.models.dialects import Reasoning
from hermes_exec_agent.models.messages import Message, ToolCall
from hermes_exec_agent.models.protocol import Item, Price, Reply, Retried, Text, Thought, ToolSpec, read_thought
from hermes_exec_agent.models.retrying import Patience
from hermes_exec_agent.models.settings import load_models
from hermes_exec_agent.models.vendor_endpoint import VendorEndpoint
from tests.rigs.bounded import PATIENCE_S, within
from tests.rigs.vendors import (
    APIS,
    CACHED,
    COMPLETION,
    KEY,
    MODELS,
    PROMPT,
    REASONING,
    SIGNATURE,
    Api,
    Refused,
    Said,
    Vendor,
    Written,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.parametrize("api", APIS)
HELLO = (Message("system", "You are an agent."), Message("user", "hello"))
LS = ToolSpec(
    "terminal",
    "Run a command.",
    {"type": "object", "properties": {"command": {"type": "string"}}, "additionalProperties": False},
)
SOON = Patience(first_wait_s=0.01)
UMLAUTS = "Grüße — 你好 👋"
CALLS = [("terminal", {"command": UMLAUTS}), ("terminal", {"command": "ls"})]


def create(rig: Vendor, patience: Patience = SOON, **more: Any) -> VendorEndpoint:
    key = Secret("THE_KEY", KEY)
    return VendorEndpoint(MODELS[rig.api], api=rig.api, base_url=rig.url, key=key, patience=patience, **more)


async def ask_model(
    model: VendorEndpoint, messages: Sequence[Message] = HELLO, *, tools: Sequence[ToolSpec] = (LS,), **more: Any
) -> list[Item]:
    return [item async for item in model.stream(messages, tools, **more)]


def run(
    api: Api, *answers: Written, whole: bool = False, patience: Patience = SOON, options: Any = None, **more: Any
) -> tuple[Vendor, list[Item]]:
    """Ask once, and return the rig and all items."""

    async def work() -> tuple[Vendor, list[Item]]:
        async with Vendor(api, answers) as rig:
            model = create(rig, patience, **(options or {}))
            model.whole = whole
            try:
                items = await ask_model(model, **more)
            finally:
                await model.close()
            return rig, items

    found: tuple[Vendor, list[Item]] = within(PATIENCE_S)(work())
    return found


def fail(api: Api, *answers: Written, patience: Patience = SOON, **more: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        run(api, *answers, patience=patience, **more)
    assert KEY not in str(caught.value)
    return caught.value


def reply_of(items: list[Item]) -> Reply:
    assert isinstance(items[-1], Reply)
    return items[-1]


@pytest.mark.parametrize("whole", [False, True], ids=["streamed", "whole"])
class TestReplies:
    def test_text_and_reasoning_come_in_pieces_and_then_as_a_whole(self, api: Api, whole: bool) -> None:
        rig, items = run(api, Said(UMLAUTS, "I think."), whole=whole)
        assert not rig.complaints
        reply = reply_of(items)
        assert "".join(item.text for item in items if isinstance(item, Text)) == UMLAUTS == reply.message.content
        assert "".join(item.text for item in items if isinstance(item, Thought)) == "I think."
        assert read_thought(reply.message.extras) == "I think."
        assert (len(items) > 3) is not whole
        assert (reply.finish, reply.model) == ("stop", MODELS[api])

    def test_calls_have_their_arguments_and_ids(self, api: Api, whole: bool) -> None:
        reply = reply_of(run(api, Said("Look.", calls=CALLS), whole=whole)[1])
        got = [(call.name, json.loads(call.arguments)) for call in reply.message.tool_calls]
        assert got == CALLS
        assert len({call.id for call in reply.message.tool_calls}) == 2
        assert reply.finish == "tool_calls"

    def test_tokens_are_counted_as_the_vendor_counts_them(self, api: Api, whole: bool) -> None:
        price = Price(input=10.0, output=100.0, cached=1.0)
        usage = reply_of(run(api, Said("ok", "Hm."), whole=whole, options={"price": price})[1]).usage
        assert (usage.prompt, usage.cached, usage.completion) == (PROMPT, CACHED, COMPLETION)
        assert usage.reasoning == REASONING
        assert usage.cost == pytest.approx((20 * 10 + 80 * 1 + COMPLETION * 100) / 1e6)
        assert not usage.estimated

    @pytest.mark.parametrize(("end", "finish"), [("length", "length"), ("filter", "content_filter")])
    def test_a_reply_that_was_cut_says_so(self, api: Api, whole: bool, end: Any, finish: str) -> None:
        assert reply_of(run(api, Said("half", end=end), whole=whole)[1]).finish == finish

    def test_reasoning_is_sent_back_to_its_vendor_alone(self, api: Api, whole: bool) -> None:
        async def work() -> tuple[Vendor, str]:
            async with Vendor(api, [Said("Look.", "I think.", CALLS), Said("done")]) as rig:
                options: dict[str, Any] = {"reasoning": Reasoning("low")}
                model, other = create(rig, **options), create(rig, **options)
                other.origin = "another"
                model.whole = other.whole = whole
                first = reply_of(await ask_model(model)).message
                results = [Message("tool", "a file", tool_call_id=call.id) for call in first.tool_calls]
                await ask_model(model, [*HELLO, first, *results])
                own = json.dumps(rig.requests[1])
                await ask_model(other, [*HELLO, first, *results])
                assert SIGNATURE not in json.dumps(rig.requests[2])
                assert "I think." not in json.dumps(rig.requests[2])
                await model.close()
                await other.close()
                return rig, own

        rig, own = within(PATIENCE_S)(work())
        assert not rig.complaints
        assert SIGNATURE in own

    def test_calls_that_were_renamed_here_have_the_ids_of_their_vendor(self, api: Api, whole: bool) -> None:
        async def work() -> Vendor:
            async with Vendor(api, [Said(calls=CALLS[:1]), Said("done")]) as rig:
                model = create(rig)
                model.whole = whole
                first = reply_of(await ask_model(model)).message
                (call,) = first.tool_calls
                renamed = ToolCall("mine", call.name, call.arguments, given_id=call.id)
                message = Message("assistant", "", (renamed,), extras=first.extras, origin=first.origin)
                await ask_model(model, [*HELLO, message, Message("tool", "x", tool_call_id="mine")])
                await model.close()
                assert call.id in json.dumps(rig.requests[1]) or api == "google"
                return rig

        rig = within(PATIENCE_S)(work())
        assert not rig.complaints
        assert "mine" not in json.dumps(rig.requests[1])


def test_the_history_of_another_model_is_accepted(api: Api) -> None:
    broken = ToolCall("b", "terminal", '{"command": "l')
    history = [
        *HELLO,
        Message("assistant", "", (ToolCall("a", "terminal", '{"command": "ls"}'), broken)),
        Message("tool", "a file", tool_call_id="a"),
        Message("tool", "no JSON", tool_call_id="b"),
        Message("assistant", ""),
        Message("user", "and now?"),
    ]
    rig, items = run(api, Said("fine"), messages=history)
    assert not rig.complaints
    assert reply_of(items).message.content == "fine"


def test_ids_and_names_of_another_model_are_as_every_vendor_takes_them(api: Api) -> None:
    long = "x" * 90
    calls = (ToolCall("functions.read:0", "bad name!", "{}"), ToolCall(long, "terminal", "{}"))
    history = [
        *HELLO,
        Message("assistant", "", calls, origin="another"),
        Message("tool", "first", tool_call_id="functions.read:0"),
        Message("tool", "second", tool_call_id=long),
        Message("user", "and now?"),
    ]
    rig, _ = run(api, Said("fine"), messages=history)
    assert not rig.complaints
    sent = json.dumps(rig.requests[0])
    assert "functions.read:0" not in sent
    assert long not in sent
    assert "bad name!" not in sent
    assert "bad_name_" in sent
    if api != "google":  # it pairs calls and results by their order, too
        ids = set(re.findall(r'"(call_[0-9a-f]{24})"', sent))
        assert len(ids) == 2
        assert all(sent.count(f'"{each}"') == 2 for each in ids)


def test_the_request_has_what_was_asked_for(api: Api) -> None:
    from hermes_exec_agent.models.call_trace import Sampling

    options = {"sampling": Sampling(temperature=0.5, seed=7)} if api == "google" else {}
    rig, items = run(api, Said("ok"), max_tokens=4000, tool_choice="none", options=options)
    (body,) = rig.requests
    text = json.dumps(body)
    assert "You are an agent." in text
    assert "Run a command." in text
    limit = body.get("max_tokens") or body.get("max_output_tokens") or body["generationConfig"]["maxOutputTokens"]
    assert limit == 4000
    choice = {
        "anthropic": ("tool_choice", {"type": "none"}),
        "google": ("toolConfig", {"functionCallingConfig": {"mode": "NONE"}}),
        "openai-responses": ("tool_choice", "none"),
    }[api]
    assert body[choice[0]] == choice[1]
    trace = reply_of(items).trace
    assert trace is not None
    assert trace.sampling["max_tokens"] == 4000
    assert trace.request_id


@pytest.mark.parametrize(("thinking", "expected"), [("off", False), ("on", True)])
def test_thinking_is_switched(api: Api, thinking: Any, expected: bool) -> None:
    rig, _ = run(api, Said("ok"), options={"reasoning": Reasoning(thinking=thinking)})
    body = rig.requests[0]
    found = {
        "anthropic": body.get("thinking", {}).get("type") == "enabled",
        "google": '"include_thoughts": true' in json.dumps(body),
        "openai-responses": body.get("reasoning", {}).get("effort") not in (None, "none", "minimal"),
    }[api]
    assert found is expected


@pytest.mark.parametrize("marks", [True, False])
def test_the_prompt_is_marked_for_the_cache_of_anthropic(api: Api, marks: bool) -> None:
    rig, _ = run(api, Said("ok"), options={"marks_cache": marks})
    assert not rig.complaints
    assert ("cache_control" in json.dumps(rig.requests[0])) is (marks and api == "anthropic")


class TestFailures:
    @pytest.mark.parametrize("status", [401, 403, 404])
    def test_a_refusal_is_not_repeated(self, api: Api, status: int) -> None:
        async def work() -> int:
            async with Vendor(api, [Refused(status, f"no, {KEY}", "permission_error")]) as rig:
                model = create(rig)
                with pytest.raises(ModelRefused, match=f"answered {status}: no") as caught:
                    await ask_model(model)
                await model.close()
                assert KEY not in str(caught.value)
                return len(rig.requests)

        assert within(PATIENCE_S)(work()) == 1

    def test_a_conversation_that_is_too_long_is_known_as_such(self, api: Api) -> None:
        message, kind = {
            "anthropic": ("prompt is too long: 210000 tokens > 200000 maximum", "invalid_request_error"),
            "google": (
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
                "INVALID_ARGUMENT",
            ),
            "openai-responses": ("Your input exceeds the context window of this model.", "context_length_exceeded"),
        }[api]  # fmt: skip
        assert isinstance(fail(api, Refused(400, message, kind)), ContextTooLong)

    @pytest.mark.parametrize("status", [429, 500, 503, 529])
    def test_a_passing_failure_is_asked_again_and_reported(self, api: Api, status: int) -> None:
        kind = {"anthropic": "rate_limit_error", "google": "RESOURCE_EXHAUSTED", "openai-responses": "rate_limit"}[api]
        rig, items = run(api, Refused(status, "busy", kind), Said("ok"))
        (retried,) = [item for item in items if isinstance(item, Retried)]
        assert str(status) in retried.reason
        assert reply_of(items).message.content == "ok"
        assert len(rig.requests) == 2

    def test_the_wait_is_the_one_that_the_vendor_asks_for(self, api: Api) -> None:
        busy = Refused(429, "busy", "rate_limit_error", (("retry-after", "0"),))
        slow = Patience(first_wait_s=60.0, longest_wait_s=60.0)
        _, items = run(api, busy, Said("ok"), patience=slow)
        assert [item.wait_s for item in items if isinstance(item, Retried)] == [0.0]
        error = fail(api, Refused(429, "busy", "rate_limit_error", (("retry-after", "900"),)))
        assert "asks to wait 900 s" in str(error)

    def test_the_attempts_end(self, api: Api) -> None:
        error = fail(api, Refused(500, "broken", "api_error"), patience=Patience(attempts=2, first_wait_s=0.01))
        assert "asked 2 times" in str(error)

    @pytest.mark.parametrize("fault", ["cut", "short", "fails"])
    def test_a_stream_that_breaks_off_is_void_and_reported(self, api: Api, fault: str) -> None:
        at: Any = {fault: 2}
        rig, items = run(api, Said("half a reply", "Thought.", **at), Said("whole"))
        assert len([item for item in items if isinstance(item, Retried)]) == 1
        assert reply_of(items).message.content == "whole"
        assert len(rig.requests) == 2

    def test_a_call_in_a_broken_stream_never_runs(self, api: Api) -> None:
        error = fail(api, Said(calls=CALLS, short=1), patience=Patience(attempts=2, first_wait_s=0.01))
        assert "asked 2 times" in str(error)

    @pytest.mark.parametrize("whole", [False, True])
    def test_what_is_no_reply_is_an_error(self, api: Api, whole: bool) -> None:
        error = fail(api, b"<html>welcome</html>", whole=whole, patience=Patience(attempts=1))
        assert str(error).startswith(MODELS[api])

    def test_silence_ends_after_its_limit(self, api: Api) -> None:
        error = fail(api, Said("hello", hang=1), patience=Patience(attempts=1, silence_s=0.3))
        assert "silent for too long" in str(error)

    def test_all_attempts_have_one_limit(self, api: Api) -> None:
        error = fail(api, Said("hello", hang=1), patience=Patience(total_s=0.5))
        assert "silent for too long" in str(error)

    def test_a_cancelled_request_ends_its_connection(self, api: Api) -> None:
        async def work() -> None:
            async with Vendor(api, [Said("hello there", hang=1)]) as rig:
                model = create(rig)
                asking = asyncio.create_task(ask_model(model))
                while not rig.requests:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.05)
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
                await rig.left.wait()
                await model.close()

        within(PATIENCE_S)(work())

    def test_no_connection_is_an_error_with_the_cause(self, api: Api) -> None:
        model = VendorEndpoint(
            MODELS[api], api=api, base_url="http://127.0.0.1:1", key=Secret("K", KEY), patience=Patience(attempts=1)
        )
        with pytest.raises(ModelError, match="connection failed"):
            within(PATIENCE_S)(ask_model(model))


def test_a_table_of_the_file_names_it(api: Api) -> None:
    models = load_models({"THE_KEY": KEY}, {"main": {"provider": api, "model": MODELS[api], "key": "env:THE_KEY"}})
    main = models.main
    assert isinstance(main, VendorEndpoint)
    assert (main.api, main.name) == (api, MODELS[api])
    assert KEY not in repr(main)
