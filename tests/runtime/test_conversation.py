"""A conversation: requests, calls, results, and what is recorded of them."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.config.secrets import Secret
from hermes_exec.errors import PlaceGone, UsageError
from hermes_exec_agent.errors import ModelError
from hermes_exec_agent.models import Models, ScriptedModel, ask, say
from hermes_exec_agent.models.messages import Message, ToolCall
from hermes_exec_agent.models.protocol import Reply, Usage
from hermes_exec_agent.runtime import CallEnded, CallStarted, Conversation, Ended, Replied, Text
from tests.runtime.conftest import Doing

if TYPE_CHECKING:
    from hermes_exec_agent.models.scripted import Request
    from hermes_exec_agent.runtime.events import EventLog
    from hermes_exec_agent.tools.tool import Tool
    from tests.runtime.conftest import Talk


def requests(conversation: Conversation) -> list[Request]:
    """What its script was asked."""
    model = conversation.model
    assert isinstance(model, ScriptedModel)
    return model.requests


def result_of(talk: Talk, call: tuple[str, Any], *tools: Tool) -> dict[str, Any]:
    """What the model reads after it asked for one call."""

    async def whole() -> dict[str, Any]:
        async with talk([ask(call), "ok"], list(tools) or None) as conversation:
            await conversation.ask("go")
            told: dict[str, Any] = json.loads(requests(conversation)[1].messages[-1].content)
            return told

    return asyncio.run(whole())


def test_a_command_runs_and_its_outcome_leads_to_the_answer(talk: Talk) -> None:
    async def whole() -> None:
        async with talk([ask(("terminal", {"command": "echo $((6*7))"})), "It is 42."]) as conversation:
            answer = await conversation.ask("what is 6 times 7?")
            result = requests(conversation)[1].messages[-1]
        assert (answer.text, answer.outcome, answer.steps, answer.calls) == ("It is 42.", "answered", 2, 1)
        assert result.role == "tool"
        told = json.loads(result.content)
        assert (told["output"], told["exit_code"], told["backend"]) == ("42\n", 0, "local")

    asyncio.run(whole())


def test_what_happens_is_told_as_it_happens(talk: Talk) -> None:
    async def whole() -> None:
        async with talk([ask(("terminal", {"command": "true"}), text="I look."), "Done."]) as conversation:
            told = [type(update) async for update in conversation.turn("go")]
        assert told == [Text, Text, Replied, CallStarted, CallEnded, Text, Replied, Ended]

    asyncio.run(whole())


def test_what_happens_is_recorded(talk: Talk, log: EventLog) -> None:
    async def whole() -> str:
        async with talk([ask(("terminal", {"command": "true"})), "Done."]) as conversation:
            await conversation.ask("go")
            return conversation.id

    events = log.events(asyncio.run(whole()))
    assert [event.kind for event in events] == ["started", "user", "assistant", "call", "result", "assistant"]
    assert events[0].data["scripted"] is True
    assert events[-1].data["model"] == "scripted"
    assert events[-1].data["usage"]["prompt"] > 0


def test_the_beginning_of_the_prompt_never_changes(talk: Talk) -> None:
    async def whole() -> None:
        replies = [ask(("terminal", {"command": "true"})), "a", ask(("nothing", {})), "b", "c"]
        async with talk(replies, instructions="Be brief.") as conversation:
            for request in ("one", "two", "three"):
                await conversation.ask(request)
            sent = requests(conversation)
        assert sent[0].messages[0].content.endswith("Be brief.")
        for before, after in itertools.pairwise(sent):
            assert after.messages[: len(before.messages)] == before.messages
            assert after.tools == before.tools

    asyncio.run(whole())


def test_a_later_process_goes_on_with_the_same_prompt(talk: Talk) -> None:
    async def whole() -> None:
        async with talk([ask(("terminal", {"command": "true"})), "a"], instructions="Be brief.") as first:
            await first.ask("one")
            before = first.messages
        async with talk(["b"], resume=first.id, instructions="Be long.") as second:
            await second.ask("two")
            assert requests(second)[0].messages == (*before, Message("user", "two"))
            assert second.usage.prompt > first.usage.prompt

    asyncio.run(whole())


def test_what_a_tool_asked_a_model_by_itself_is_counted_also_by_whoever_goes_on(talk: Talk) -> None:
    async def spends(_: Any, context: Any) -> str:
        context.spend(Usage(prompt=1_000_000, completion=7, cost=0.5))
        return "drafted"

    async def whole() -> tuple[Usage, Usage, Usage]:
        async with talk([ask(("draft", {})), say("Done.")], [Doing("draft", spends)]) as first:
            answer = await first.ask("draft it")
            async with talk([], resume=first.id) as second:
                return answer.usage, first.usage, second.usage

    answer, first, second = asyncio.run(whole())
    assert answer.prompt > 1_000_000
    assert answer == first == second
    assert first.cost == 0.5


def test_what_another_program_said_before_comes_first(talk: Talk) -> None:
    async def whole() -> None:
        said = (Message("user", "hello"), Message("assistant", "hi"))
        async with talk(["fine"], history=said) as conversation:
            await conversation.ask("how are you?")
            assert requests(conversation)[0].messages[1:] == (*said, Message("user", "how are you?"))

    asyncio.run(whole())


def test_an_unknown_tool_is_told_with_those_that_there_are(talk: Talk) -> None:
    error = result_of(talk, ("python", {}))["error"]
    assert error["type"] == "unknown_tool"
    assert "terminal" in error["message"]


@pytest.mark.parametrize("arguments", ['{"command": "ls', "[" * 100_000, '["ls"]', "ls"])
def test_malformed_arguments_are_told_and_nothing_runs(talk: Talk, arguments: str) -> None:
    ran: list[object] = []
    tool = Doing("terminal", lambda given, _: ran.append(given), {"command": {"type": "string"}})
    assert result_of(talk, ("terminal", arguments), tool)["error"]["type"] == "arguments"
    assert not ran


def test_a_lost_place_is_told_as_such_and_never_as_output(talk: Talk) -> None:
    def lost(*_: object) -> None:
        raise PlaceGone("the container died", remedy="open it again")

    told = result_of(talk, ("terminal", {}), Doing("terminal", lost))
    assert told["ok"] is False
    assert "output" not in told
    assert "the container died" in told["error"]["message"]
    assert "nothing ran" in told["error"]["message"]


def test_a_broken_tool_does_not_end_the_conversation(talk: Talk) -> None:
    def broken(given: dict[str, Any], _: object) -> object:
        return given["no such key"]

    error = result_of(talk, ("terminal", {}), Doing("terminal", broken))["error"]
    assert error["type"] == "internal"


def test_calls_that_change_nothing_run_side_by_side(talk: Talk) -> None:
    """Neither of the two would end if they ran one after another."""
    meeting = asyncio.Barrier(2)

    async def meet(*_: object) -> str:
        await meeting.wait()
        return "met"

    async def whole() -> None:
        look = Doing("look", meet, {"at": {"type": "string"}}, changes=False)
        async with talk([ask(("look", {"at": "a"}), ("look", {"at": "b"})), "ok"], [look]) as conversation:
            answer = await asyncio.wait_for(conversation.ask("go"), 50)
            results = requests(conversation)[1].messages[-2:]
        assert answer.calls == 2
        assert [message.tool_call_id for message in results] == [
            call.id for call in conversation.messages[2].tool_calls
        ]

    asyncio.run(whole())


def test_calls_that_change_something_run_one_after_another_in_their_order(talk: Talk) -> None:
    async def whole() -> str:
        calls = [("terminal", {"command": "v="}), *(("terminal", {"command": f"v=${{v}}{n}"}) for n in range(5))]
        async with talk([ask(*calls, ("terminal", {"command": "echo $v"})), "ok"]) as conversation:
            await conversation.ask("go")
            return str(json.loads(requests(conversation)[1].messages[-1].content)["output"])

    assert asyncio.run(whole()) == "01234\n"


def test_no_two_calls_of_a_conversation_have_one_id(talk: Talk) -> None:
    same = ask(("terminal", {"command": "true"}))

    async def whole() -> None:
        async with talk([same, same, "ok"]) as conversation:
            await conversation.ask("go")
            ids = [call.id for message in conversation.messages for call in message.tool_calls]
            answered = [message.tool_call_id for message in conversation.messages if message.role == "tool"]
        assert len(set(ids)) == 2
        assert ids == answered

    asyncio.run(whole())


def test_two_calls_of_one_reply_have_different_ids(talk: Talk) -> None:
    calls = tuple(ToolCall("call_0", "terminal", '{"command": "true"}') for _ in range(2))

    async def whole() -> None:
        async with talk([Reply(Message("assistant", "", calls), "tool_calls"), "ok"]) as conversation:
            await conversation.ask("go")
            answered = [message.tool_call_id for message in conversation.messages if message.role == "tool"]
        assert len(set(answered)) == 2

    asyncio.run(whole())


def test_a_reply_that_was_cut_runs_no_half_of_a_call(talk: Talk) -> None:
    ran: list[object] = []
    tool = Doing("write", lambda given, _: ran.append(given), {"text": {"type": "string"}})
    whole_call, cut_call = ("write", {"text": "a"}), ("write", {"text": "b"})
    reply = ask(whole_call, cut_call)

    async def whole() -> None:
        async with talk([Reply(reply.message, "length"), "ok"], [tool]) as conversation:
            await conversation.ask("go")
            assert "the reply was cut" in requests(conversation)[1].messages[-1].content

    asyncio.run(whole())
    assert ran == [{"text": "a"}]


def test_an_empty_reply_is_asked_for_again(talk: Talk) -> None:
    async def whole() -> None:
        async with talk([say(""), say(" "), "here I am"]) as conversation:
            assert (await conversation.ask("go")).text == "here I am"

    asyncio.run(whole())


def test_a_failure_of_the_model_is_recorded_and_the_next_turn_is_well_formed(talk: Talk, log: EventLog) -> None:
    async def whole() -> None:
        async with talk([ModelError("down"), "back"]) as conversation:
            with pytest.raises(ModelError, match="down"):
                await conversation.ask("one")
            assert log.events(conversation.id)[-1].data == {"error": "down"}
            assert (await conversation.ask("two")).text == "back"
            roles = [message.role for message in requests(conversation)[1].messages]
        assert roles == ["system", "user", "assistant", "user"]

    asyncio.run(whole())


def test_one_conversation_answers_one_request_at_a_time(talk: Talk) -> None:
    async def whole() -> None:
        async with talk(["one", "two"]) as conversation:
            first = asyncio.create_task(conversation.ask("one"))
            await asyncio.sleep(0)
            with pytest.raises(UsageError, match="busy"):
                await conversation.ask("two")
            await first

    asyncio.run(whole())


def test_a_conversation_goes_on_from_what_another_program_added(talk: Talk) -> None:
    async def whole() -> None:
        async with talk(["one", "two"]) as first:
            await first.ask("one")
            async with talk(["three"], resume=first.id) as second:
                await first.ask("two")
                await second.ask("three")
                said = [message.content for message in requests(second)[0].messages[1:]]
        assert said == ["one", "one", "two", "two", "three"]

    asyncio.run(whole())


def test_the_models_key_reaches_neither_the_model_nor_the_record(talk: Talk, log: EventLog) -> None:
    key = "sk-very-secret-0123456789"

    async def whole() -> None:
        model = ScriptedModel([ask(("terminal", {"command": f"echo {key}"})), "ok"])
        async with talk(model, models=Models(model, secrets=[Secret("KEY", key)])) as conversation:
            await conversation.ask("go")
            assert "[secret KEY]" in requests(conversation)[1].messages[-1].content
            (result,) = [event for event in log.events(conversation.id) if event.kind == "result"]
            assert key not in json.dumps(result.data)

    asyncio.run(whole())
