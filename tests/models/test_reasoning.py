"""What endpoints send beside the known fields, put together from streams, and how they are asked to think."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_exec.errors import ConfigError
from hermes_exec_agent.errors import ModelError
from hermes_exec_agent.models import complete, load_models
from hermes_exec_agent.models.dialects import Reasoning, find_dialect
from hermes_exec_agent.models.endpoint import Endpoint, Patience
from hermes_exec_agent.models.messages import Message
from hermes_exec_agent.models.protocol import Reply, Text, Thought, ToolSpec, get_reasoning, set_reasoning
from hermes_exec_agent.models.reply_extras import LIMIT, MESSAGE_FIELDS, Extras, ExtrasBudget
from tests.rigs.endpoint import KEY, Raw, ScriptedEndpoint

HELLO = (Message("user", "hello"),)
LS = ToolSpec("terminal", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}})


def stream(*deltas: dict[str, Any]) -> Raw:
    """A stream of these."""
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    frames = [json.dumps({"id": "c", "model": "m", "choices": [choice]}) for choice in choices]
    return Raw("".join(f"data: {frame}\n\n" for frame in [*frames, "[DONE]"]).encode())


def items(*deltas: dict[str, Any]) -> list[Any]:
    """What the client makes of a stream."""

    async def whole() -> list[Any]:
        model = Endpoint("m", base_url=rig.url)
        try:
            return [item async for item in model.stream(HELLO)]
        finally:
            await model.close()

    with ScriptedEndpoint([stream(*deltas)]) as rig:
        return asyncio.run(whole())


def call(**fields: Any) -> dict[str, Any]:
    """A piece of a call."""
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return {"tool_calls": [{**({"function": function} if function else {}), **fields}]}


def sign(word: str) -> dict[str, Any]:
    return {"google": {"thought_signature": word}}


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param(
            [
                call(id="a", name="x", arguments='{"n"', extra_content=sign("s")),
                call(arguments=": 1}"),
                call(id="b", name="y", arguments="{}"),
            ],
            id="without an index",
        ),
        pytest.param(
            [
                call(id="a", name="x", arguments=""),
                call(id="b", name="y", arguments=""),
                call(id="a", arguments='{"n": 1}'),
                call(id="b", arguments="{}"),
                call(id="a", extra_content=sign("s")),
            ],
            id="interleaved by id",
        ),
        pytest.param(
            [
                call(index=0, id="a", name="x", arguments='{"n": 1}', extra_content=sign("s")),
                call(index=0, id="b", name="y", arguments="{}"),
            ],
            id="all with index 0",
        ),
        pytest.param(
            [
                call(index=1, id="b", name="y", arguments="{}"),
                call(index=0, id="a", name="x", arguments='{"n"'),
                call(index=0, extra_content=sign("s")),
                call(index=0, arguments=": 1}"),
            ],
            id="interleaved by index",
        ),
    ],
)
def test_calls_and_their_signatures_are_put_together(deltas: list[dict[str, Any]]) -> None:
    (reply,) = items(*deltas)
    assert isinstance(reply, Reply)
    got = [(each.id, each.name, each.arguments, each.extras) for each in reply.message.tool_calls]
    assert got == [("a", "x", '{"n": 1}', {"extra_content": sign("s")}), ("b", "y", "{}", {})]


def test_reasoning_is_told_as_it_comes_and_kept_beside_the_text() -> None:
    *told, reply = items({"reasoning": "I "}, {"reasoning": "look.", "content": ""}, {"content": "Here."})
    assert told == [Thought("I "), Thought("look."), Text("Here.")]
    assert reply.message == Message("assistant", "Here.", extras={"reasoning": "I look."})


def test_think_tags_in_the_text_stay_there_as_only_a_server_with_a_parser_takes_them_out() -> None:
    *told, reply = items({"content": "<think>I look.</think>Here."})
    assert told == [Text("<think>I look.</think>Here.")]
    assert (reply.message.content, reply.message.extras) == ("<think>I look.</think>Here.", {})


def test_a_character_that_a_stream_cut_in_two_is_whole_and_half_of_one_can_be_sent_back() -> None:
    *_, reply = items({"reasoning": "a \ud83d"}, {"reasoning": "\ude00"}, {"content": "b \ud83d"})
    assert (reply.message.content, reply.message.extras) == ("b \ufffd", {"reasoning": "a 😀"})


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
FIELDS = {"reasoning.text": "text", "reasoning.summary": "summary", "reasoning.encrypted": "data"}


@st.composite
def cut(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Entries, and their pieces in any order that keeps that of each entry, the first ones first."""
    entries: list[dict[str, Any]] = []
    for index in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(sorted(FIELDS)))
        entry: dict[str, Any] = {"type": kind, "index": index, FIELDS[kind]: draw(TEXTS)}
        if draw(st.booleans()):
            entry["id" if kind == "reasoning.encrypted" else "signature"] = draw(TEXTS)
        entries.append(entry)
    pieces: list[list[dict[str, Any]]] = []
    for entry in entries:
        key = FIELDS[entry["type"]]
        frame = {"type": entry["type"], "index": entry["index"]}
        at = draw(st.integers(0, len(entry[key])))
        rest = {name: value for name, value in entry.items() if name not in (key, "type", "index")}
        pieces.append([{**frame, key: entry[key][:at]}, {**frame, key: entry[key][at:], **rest}])
    late = draw(st.permutations([each[1] for each in pieces]))
    return entries, [*(each[0] for each in pieces), *late]


@given(cut())
def test_details_of_reasoning_are_the_same_however_they_are_cut(case: tuple[list[dict[str, Any]], list[Any]]) -> None:
    entries, pieces = case
    extras = Extras(MESSAGE_FIELDS, ExtrasBudget())
    for piece in pieces:
        extras.add({"reasoning_details": [piece]})
    assert extras.fields == {"reasoning_details": entries}


def test_details_without_an_index_are_joined_only_where_they_go_on() -> None:
    extras = Extras(MESSAGE_FIELDS, ExtrasBudget())
    text = {"type": "reasoning.text"}
    encrypted = [{"type": "reasoning.encrypted", "data": data} for data in ("one", "two")]
    for piece in (
        {**text, "text": "a"},
        {**text, "text": "b"},
        {**text, "signature": "s"},
        {**text, "text": "c"},
        *encrypted,
    ):
        extras.add({"reasoning_details": [piece]})
    assert extras.fields["reasoning_details"] == [
        {**text, "text": "ab", "signature": "s"},
        {**text, "text": "c"},
        *encrypted,
    ]


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param([{"reasoning": "x" * (LIMIT // 2)}, {"reasoning": "é" * (LIMIT // 4 + 1)}], id="text"),
        pytest.param([{"reasoning_details": [{"index": n} for n in range(LIMIT // 8)]}], id="entries"),
        pytest.param([call(id="a", name="x", arguments="{}", extra_content=sign("x" * LIMIT))], id="a call's"),
    ],
)
def test_more_than_the_bound_is_refused_before_anything_of_the_reply_runs(deltas: list[dict[str, Any]]) -> None:
    async def whole(url: str) -> None:
        model = Endpoint("m", base_url=url, patience=Patience(first_wait_s=0.01))
        try:
            await complete(model, HELLO)
        finally:
            await model.close()

    with ScriptedEndpoint([stream(*deltas)], forever=True) as rig, pytest.raises(ModelError) as caught:
        asyncio.run(whole(rig.url))
    assert str(caught.value).startswith("m: the reasoning of its reply exceeds 1 MiB; nothing of that reply ran")
    assert len(rig.requests) == 1


def body(provider: str, *, asked: Reasoning | None = None, options: dict[str, Any] | None = None, **more: Any) -> Any:
    """The whole of a request's body."""
    with ScriptedEndpoint(["ok"]) as rig:
        models = load_models(
            {"K": KEY}, {"main": {"provider": provider, "model": "m", "key": "env:K", "base_url": rig.url, **more}}
        )
        if asked is not None:
            assert set_reasoning(models.main, asked)
            assert get_reasoning(models.main) == asked

        async def whole() -> None:
            try:
                await complete(models.main, HELLO, **(options or {}))
            finally:
                await models.close()

        asyncio.run(whole())
    return rig.requests[0]


PLAIN = {
    "model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": True,
    "stream_options": {"include_usage": True},
}  # fmt: skip
FORMAT = {"type": "json_schema", "json_schema": {"name": "reply", "schema": {"type": "object"}, "strict": True}}


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({}, {}),
        ({"tools": [LS]}, {"tools": [LS.to_wire()]}),
        ({"max_tokens": 9}, {"max_tokens": 9}),
        ({"schema": {"type": "object"}}, {"response_format": FORMAT}),
        (
            {"schema": {"type": "object"}, "tools": [LS], "max_tokens": 9},
            {"tools": [LS.to_wire()], "response_format": FORMAT, "max_tokens": 9},
        ),
    ],
)
def test_every_shape_of_request_is_sent_whole_and_with_nothing_else(options: Any, more: dict[str, Any]) -> None:
    assert body("custom", options=options) == PLAIN | more


@pytest.mark.parametrize(
    ("provider", "asked", "more"),
    [
        ("openai", {"effort": "high"}, {"reasoning_effort": "high"}),
        ("ollama", {"thinking": "off"}, {"reasoning_effort": "none"}),
        ("custom", {"thinking": "on"}, {}),
        ("gemini", {"effort": "low"}, {"reasoning_effort": "low"}),
        ("deepseek", {"thinking": "off"}, {"thinking": {"type": "disabled"}}),
        (
            "deepseek", {"thinking": "on", "effort": "max"},
            {"thinking": {"type": "enabled"}, "reasoning_effort": "max"},
        ),
        ("openrouter", {"effort": "xhigh"}, {"reasoning": {"effort": "xhigh"}}),
        ("openrouter", {"thinking": "off"}, {"reasoning": {"effort": "none"}}),
        ("openrouter", {"thinking": "on"}, {"reasoning": {"enabled": True}}),
        ("vllm", {"thinking": "off"}, {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}}),
        ("sglang", {"effort": "low"}, {"reasoning_effort": "low"}),
        (
            "llama.cpp", {"thinking": "on", "effort": "low"},
            {"chat_template_kwargs": {"enable_thinking": True, "thinking": True, "reasoning_effort": "low"}},
        ),
    ],
)  # fmt: skip
def test_effort_and_thinking_go_where_the_endpoint_documents_them(
    provider: str, asked: dict[str, Any], more: dict[str, Any]
) -> None:
    assert body(provider, **asked) == PLAIN | more


def test_effort_can_be_changed_between_two_requests() -> None:
    assert body("deepseek", asked=Reasoning(effort="low"), effort="high")["reasoning_effort"] == "low"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"effort": "very"}, "effort"),
        ({"thinking": True}, "thinking"),
        ({"thinking": "off", "effort": "high"}, "models.main: thinking is off, so that effort = high has no meaning"),
    ],
)
def test_what_makes_no_sense_is_refused(said: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_models({"OPENAI_API_KEY": KEY}, {"main": {"provider": "openai", "model": "m", **said}})


@pytest.mark.parametrize(
    ("url", "more"),
    [
        ("https://api.deepseek.com/v1", {"thinking": {"type": "disabled"}}),
        ("https://openrouter.ai/api/v1", {"reasoning": {"effort": "none"}}),
        ("https://generativelanguage.googleapis.com/v1beta/openai", {"reasoning_effort": "none"}),
        ("https://elsewhere.example/v1", {"reasoning_effort": "none"}),
    ],
)
def test_a_known_host_is_asked_in_its_own_way_whatever_the_provider_is_called(url: str, more: dict[str, Any]) -> None:
    assert find_dialect("openai", url).ask(Reasoning(thinking="off")) == more


def test_a_key_of_deepseek_or_gemini_is_sent_to_nobody_else_unasked() -> None:
    environ = {"GEMINI_API_KEY": "gemini-key-123456", "DEEPSEEK_API_KEY": "deepseek-key-123456", "DEFAULT_MODEL": "m"}
    models = load_models({**environ, "LLM_BASE_URL": "http://box:9/v1"})
    assert models.secrets == ()
    assert [each.name for each in load_models({**environ, "LLM_PROVIDER": "gemini"}).secrets] == ["GEMINI_API_KEY"]


def test_an_origin_is_one_address_and_one_model() -> None:
    origins = {Endpoint(name, base_url=url).origin for name in ("m", "n") for url in ("http://a/v1", "http://b/v1")}
    assert len(origins) == 4
    assert Endpoint("m", base_url="http://a/v1", window=9).origin in origins
