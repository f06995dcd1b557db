"""A model whose replies were written beforehand."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from hermes_exec.errors import ConfigError, OutcomeUnknown, PlaceGone, PlaceUnavailable
from hermes_exec_agent.errors import ModelError, ScriptEnded
from hermes_exec_agent.models import ScriptedModel, ask, complete, say
from hermes_exec_agent.models.messages import Message, ToolCall
from hermes_exec_agent.tools.envelope import Envelope, Failure, failure_envelope, to_failure

HELLO = (Message("user", "hello"),)


def test_replies_come_in_their_order() -> None:
    model = ScriptedModel(["one", say("two")])
    assert [asyncio.run(complete(model, HELLO)).message.content for _ in range(2)] == ["one", "two"]


def test_it_says_when_it_has_ended() -> None:
    model = ScriptedModel([])
    with pytest.raises(ScriptEnded, match="ends before request 1; replies: 0"):
        asyncio.run(complete(model, HELLO))


def test_it_keeps_what_it_was_asked() -> None:
    model = ScriptedModel(["one"])
    asyncio.run(complete(model, HELLO, max_tokens=5))
    (request,) = model.requests
    assert (request.messages, request.max_tokens) == (HELLO, 5)


def test_a_reply_can_be_made_of_the_conversation() -> None:
    model = ScriptedModel([lambda messages, tools: f"you said {messages[-1].content}"])
    assert asyncio.run(complete(model, HELLO)).message.content == "you said hello"


def test_a_failure_can_be_part_of_the_script() -> None:
    model = ScriptedModel([ModelError("down"), "up again"])
    with pytest.raises(ModelError, match="down"):
        asyncio.run(complete(model, HELLO))
    assert asyncio.run(complete(model, HELLO)).message.content == "up again"


def test_calls_of_a_script_have_ids_of_their_own() -> None:
    calls = ask(("a", {}), ("a", {})).message.tool_calls + ask(("a", {})).message.tool_calls
    assert len({call.id for call in calls}) == 3


def test_every_reply_names_the_script() -> None:
    model = ScriptedModel(["one"], name="scripted: tour")
    assert model.scripted
    assert asyncio.run(complete(model, HELLO)).model == "scripted: tour"


def test_a_script_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tour.jsonl"
    file.write_text('{"tool_calls": [{"name": "terminal", "arguments": {"command": "ls"}}]}\n\n{"content": "done"}\n')
    model = ScriptedModel.from_file(file)
    assert asyncio.run(complete(model, HELLO)).message.tool_calls[0].arguments == '{"command": "ls"}'
    assert asyncio.run(complete(model, HELLO)).message.content == "done"
    assert model.name == "scripted: tour.jsonl"


NOTICE = "\n\n[notice of the agent's program] The budget is spent."


@pytest.mark.parametrize(
    ("result", "reply"),
    [
        (Envelope(True, "local", exit_code=0).text(), "fine"),
        (Envelope(True, "local", exit_code=0).text() + NOTICE, "fine"),
        (Envelope(False, "local", exit_code=3).text() + NOTICE, "failed"),
        (failure_envelope("local", Failure("denied", "no")).text(), "denied"),
        (failure_envelope("far", to_failure(PlaceUnavailable("it is away"))).text(), "unavailable"),
        (failure_envelope("far", to_failure(PlaceGone("it was removed"))).text(), "unavailable"),
        (failure_envelope("far", to_failure(OutcomeUnknown("it broke"))).text(), "failed"),
        ("interrupted: it was stopped before its end.", "failed"),
    ],
)
def test_a_reply_depends_on_how_the_calls_before_it_ended(tmp_path: Path, result: str, reply: str) -> None:
    file = tmp_path / "tour.jsonl"
    conditions = ("denied", "unavailable", "failed")
    branches = [json.dumps({"if": each, "content": each}) for each in conditions]
    file.write_text("\n".join([*branches, '{"content": "fine"}', '{"content": "next"}']))
    model = ScriptedModel.from_file(file)
    good = Message("tool", Envelope(True, "local").text(), tool_call_id="1")
    earlier = Message("tool", failure_envelope("local", Failure("denied", "no")).text(), tool_call_id="0")
    asking = Message("assistant", "", (ToolCall("1", "terminal", "{}"), ToolCall("2", "terminal", "{}")))
    messages = [*HELLO, earlier, asking, good, Message("tool", result, tool_call_id="2")]
    assert asyncio.run(complete(model, messages)).message.content == reply
    assert asyncio.run(complete(model, messages)).message.content == "next"


@pytest.mark.parametrize(
    "line", ["[]", "{}", "nonsense", '{"content": 7}', '{"tool_calls": [{"name": "x"}]}', "[" * 99_999]
)
def test_a_wrong_line_of_a_script_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "tour.jsonl"
    file.write_text(f'{{"content": "fine"}}\n{line}\n')
    with pytest.raises(ConfigError, match="line 2 is neither a reply"):
        ScriptedModel.from_file(file)
