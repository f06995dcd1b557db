"""A conversation that fills the window is made shorter, and stays a conversation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_exec_agent.errors import ContextTooLong, ModelError
from hermes_exec_agent.models import ScriptedModel, ask, say
from hermes_exec_agent.models.messages import Message, ToolCall
from hermes_exec_agent.models.protocol import Usage
from hermes_exec_agent.runtime import Compacted
from hermes_exec_agent.runtime.compaction import (
    CLEARED,
    REQUEST,
    SUMMARY,
    Compaction,
    Compactor,
    clear_results,
    estimate_size,
    has_request,
    shrink_results,
    summarize_without_model,
)
from tests.rigs.endpoint import find_message_fault
from tests.runtime.conftest import shows

if TYPE_CHECKING:
    from hermes_exec_agent.models.scripted import ScriptEntry
    from hermes_exec_agent.runtime.events import EventLog
    from tests.runtime.conftest import Talk

SYSTEM = Message("system", "You are an agent.")
WINDOW = 2_000
LONG = st.sampled_from([1, 10, 150, 300, 2_000, 9_000])


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[Message], str]:
    """A well-formed conversation that waits for the model, and the request that it works on."""
    messages, request, number = [SYSTEM], "", 0
    for turn in range(draw(st.integers(1, 4))):
        request = draw(st.sampled_from(["y", "go on", f"do {turn}" + "!" * draw(LONG)]))
        messages.append(Message("user", request))
        for _ in range(draw(st.integers(0, 6))):
            calls = tuple(
                ToolCall(f"c{number + each}", "terminal", '{"command": "ls"}')
                for each in range(draw(st.integers(1, 3)))
            )
            number += len(calls)
            messages.append(Message("assistant", "w" * draw(st.sampled_from([0, 5, 500])), calls))
            messages += [Message("tool", "r" * draw(LONG), tool_call_id=call.id) for call in calls]
        messages.append(Message("assistant", "a" * draw(LONG)))
    while messages[-1].role == "assistant" and not messages[-1].tool_calls:
        messages.pop()
    return messages, request


def shortened(
    messages: list[Message], request: str, *replies: Any, compactor: Compactor | None = None, **options: Any
) -> Compaction | None:
    auxiliary = ScriptedModel(replies or ["They worked."], window=WINDOW)
    given_: dict[str, Any] = {"window": WINDOW, "tool_tokens": 100, "auxiliary": auxiliary, **options}
    return asyncio.run((compactor or Compactor()).shorten(messages, request=request, **given_))


@given(conversations(), st.booleans())
def test_what_is_left_is_well_formed_smaller_and_has_the_request(case: tuple[list[Message], str], down: bool) -> None:
    messages, request = case
    before = list(messages)
    found = shortened(messages, request, *([ModelError("down")] if down else []))
    assert messages == before
    if found is None:
        return
    assert not find_message_fault([message.to_wire() for message in found.messages])
    assert found.messages[0] == SYSTEM
    assert any(has_request(message, request) for message in found.messages)
    assert estimate_size(found.messages) == found.after <= found.before * 0.9
    assert found.how in (("cleared", "listed") if down else ("cleared", "summarised"))


@given(conversations())
def test_to_shorten_again_and_again_comes_to_an_end(case: tuple[list[Message], str]) -> None:
    messages, request = case
    compactor = Compactor()
    for _ in range(12):
        found = shortened(messages, request, compactor=compactor)
        if found is None:
            break
        messages = found.messages
    else:
        pytest.fail("it never ends")
    asked = ScriptedModel([])
    assert shortened(messages, request, compactor=compactor, auxiliary=asked) is None
    assert not asked.requests


@given(conversations(), st.integers(0, 3_000))
def test_clearing_and_shrinking_touch_results_alone(case: tuple[list[Message], str], room: int) -> None:
    messages, _ = case
    for changed in (clear_results(messages, room), shrink_results(messages, room)):
        assert [(message.role, message.tool_call_id) for message in changed] == [
            (message.role, message.tool_call_id) for message in messages
        ]
        assert [each for each in changed if each.role != "tool"] == [each for each in messages if each.role != "tool"]
        assert estimate_size(changed) <= estimate_size(messages)
    assert clear_results(clear_results(messages, room), room) == clear_results(messages, room)


def worked(results: int, length: int, request: str = "count the files") -> list[Message]:
    """A request and calls with results of a length."""
    messages = [SYSTEM, Message("user", request)]
    for number in range(results):
        call = ToolCall(f"c{number}", "terminal", "{}")
        messages += [Message("assistant", "", (call,)), Message("tool", str(number) * length, tool_call_id=call.id)]
    return messages


def test_a_conversation_with_room_is_left_alone() -> None:
    assert shortened(worked(2, 100), "count the files") is None


def test_old_results_are_cleared_before_anything_is_summarised() -> None:
    auxiliary = ScriptedModel([])
    found = shortened(worked(5, 1_500), "count the files", auxiliary=auxiliary)
    assert found is not None
    assert found.how == "cleared"
    assert not auxiliary.requests
    assert found.messages[3].content.startswith(f"{CLEARED}1500 characters of terminal")
    assert found.messages[-1].content == "4" * 1_500  # the latest stays


def test_the_summary_takes_the_place_of_what_was_before_and_keeps_the_request() -> None:
    messages = [SYSTEM, *(Message("user" if each % 2 == 0 else "assistant", "x" * 900) for each in range(8))]
    found = shortened([*messages, *worked(1, 10)[1:]], "count the files", "They talked.")
    assert found is not None
    assert found.how == "summarised"
    assert found.messages[1].content.startswith(SUMMARY + "They talked.")
    assert any(message.content == "count the files" for message in found.messages)


def test_a_request_that_is_far_back_is_repeated_word_for_word() -> None:
    request = "count the files in ./a, and ONLY those\n  with .py"
    messages = [*worked(30, 190, request)]
    found = shortened(messages, request, "They counted.")
    assert found is not None
    assert found.messages[1].content == f"{SUMMARY}They counted.{REQUEST}{request}"


def test_without_a_summariser_what_happened_is_listed() -> None:
    found = shortened(worked(30, 190), "count the files", ModelError("down"))
    assert found is not None
    assert found.how == "listed"
    assert "You called terminal {}" in found.messages[1].content


def test_a_summariser_that_failed_is_left_alone_for_a_while() -> None:
    compactor, auxiliary = Compactor(), ScriptedModel([ModelError("down")])
    for _ in range(2):
        found = shortened(worked(30, 190), "count the files", compactor=compactor, auxiliary=auxiliary)
        assert found is not None
    assert len(auxiliary.requests) == 1


def test_a_summariser_that_says_too_much_is_cut() -> None:
    found = shortened(worked(30, 190), "count the files", "blah " * 10_000)
    assert found is not None
    assert found.after < WINDOW / 2


def test_a_list_of_what_happened_tells_how_calls_went() -> None:
    call = ToolCall("c", "terminal", '{"command": "false"}')
    result = Message("tool", '{"ok": true, "exit_code": 1}', tool_call_id="c")
    assert summarize_without_model([Message("assistant", "", (call,)), result]).endswith("ok, exit code 1")


def test_the_endpoints_own_count_is_believed() -> None:
    compactor = Compactor()
    messages = worked(3, 1_000)
    assert shortened(messages, "count the files", compactor=compactor) is None
    compactor.measure(messages, Usage(prompt=3 * estimate_size(messages)), 0)
    assert shortened(messages, "count the files", compactor=compactor) is not None


def test_a_long_conversation_goes_on_after_it_was_shortened(talk: Talk, log: EventLog) -> None:
    """Against an endpoint that refuses what is ill formed, and over a resumption."""
    tool = shows("look", "x" * 1_500)

    async def whole() -> None:
        told: list[object] = []
        replies: list[ScriptEntry] = [*(ask(("look", {})) for _ in range(12)), "done"]
        async with talk(ScriptedModel(replies, window=3_000), [tool]) as conversation:
            answer = await conversation.ask("look around", told.append)
            assert answer.text == "done"
            compactions = [update for update in told if isinstance(update, Compacted)]
            assert compactions
            model = conversation.model
            assert isinstance(model, ScriptedModel)
            for request in model.requests:
                assert not find_message_fault([message.to_wire() for message in request.messages])
                assert any(has_request(message, "look around") for message in request.messages)
                assert estimate_size(request.messages) < 3_000
            messages = conversation.messages
        async with talk(["on"], [tool], resume=conversation.id) as later:
            assert later.messages == messages

    asyncio.run(whole())


def test_what_the_endpoint_finds_too_long_is_shortened_and_asked_again(talk: Talk) -> None:
    async def whole() -> None:
        tool = shows("look", "x" * 4_000)
        replies: list[ScriptEntry] = [
            *(ask(("look", {})) for _ in range(4)),
            ContextTooLong("too long", window=2_000),
            "summary",
            "done",
        ]
        async with talk(ScriptedModel(replies), [tool]) as conversation:
            assert (await conversation.ask("look")).text in ("done", "summary")

    asyncio.run(whole())


def test_a_request_that_can_never_fit_is_said_to_be_too_long(talk: Talk) -> None:
    async def whole() -> None:
        async with talk(ScriptedModel([ContextTooLong("too long", window=2_000)])) as conversation:
            with pytest.raises(ContextTooLong):
                await conversation.ask("x" * 9_000)

    asyncio.run(whole())


def test_what_frees_too_little_is_not_tried_again_until_the_conversation_has_grown() -> None:
    request = "x" * 6_400
    compactor, auxiliary = Compactor(), ScriptedModel(["They worked."] * 3, window=WINDOW)
    messages = worked(10, 5, request)
    for _ in range(3):
        assert shortened(messages, request, compactor=compactor, auxiliary=auxiliary) is None
    assert len(auxiliary.requests) == 1
    assert shortened(worked(40, 5, request), request, compactor=compactor, auxiliary=auxiliary) is None
    assert len(auxiliary.requests) == 2


def test_a_conversation_is_made_shorter_when_it_is_asked_to_be(talk: Talk, log: EventLog) -> None:
    model = ScriptedModel([say("word " * 400), say("word " * 400), say("They talked."), say("Of words.")])

    async def speak() -> str:
        async with talk(model) as conversation:
            await conversation.ask("say words")
            await conversation.ask("say more")
            before = conversation.usage.completion
            assert await conversation.compact()
            assert conversation.usage.completion > before  # the summary is a model's, too
            await conversation.ask("of what?")
            return conversation.id

    conversation = asyncio.run(speak())
    asked = model.requests[-1].messages
    assert find_message_fault([message.to_wire() for message in asked]) == ""
    assert "They talked." in asked[1].content
    assert sum(len(message.content) for message in asked[1:]) < 3_000
    assert "word " * 400 in {event.data.get("content") for event in log.events(conversation)}


@given(conversations())
def test_between_two_requests_it_can_be_made_shorter_too(conversation: tuple[list[Message], str]) -> None:
    messages, request = conversation
    found = shortened([*messages, Message("assistant", "Done.")], request, force=True)
    if found is not None:
        assert (
            find_message_fault([message.to_wire() for message in [*found.messages, Message("user", "and now?")]]) == ""
        )
