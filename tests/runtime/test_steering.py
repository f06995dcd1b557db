"""Words of the person during a turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import UsageError
from hermes_exec_agent.models import ask, say
from hermes_exec_agent.runtime import Steered
from tests.runtime.conftest import Doing

if TYPE_CHECKING:
    from hermes_exec_agent.runtime import Conversation, Update
    from hermes_exec_agent.runtime.events import EventLog
    from tests.runtime.conftest import Talk

_HEAD = "[notice of the agent's program] The person says, while you work: "


def test_the_model_reads_them_after_the_call_that_runs_also_after_a_resumption(talk: Talk, log: EventLog) -> None:
    async def whole() -> None:
        held: list[Conversation] = []
        told: list[Update] = []
        steering = Doing("steer", lambda _, __: held[0].steer("look at https://example.org/a, too"))
        async with talk([ask(("steer", {})), "Done."], [steering]) as one:
            held.append(one)
            await one.ask("go", told.append)
            assert not one.take_steering()
            (result,) = [message.content for message in one.messages if message.role == "tool"]
            assert result.endswith(f"\n\n{_HEAD}look at https://example.org/a, too")
            assert "example.org" in one.hosts
        assert Steered("look at https://example.org/a, too") in told
        async with talk([], resume=one.id) as again:
            assert again.messages == one.messages
            assert again.hosts == one.hosts
        assert [event.kind for event in log.events(one.id)][-3:] == ["result", "steered", "assistant"]

    asyncio.run(whole())


def test_words_that_the_turn_did_not_read_are_left_for_the_next_request(talk: Talk) -> None:
    async def whole() -> None:
        held: list[Conversation] = []

        def answer(*_: Any) -> Any:
            held[0].steer("too late")
            return say("Done.")

        async with talk([answer]) as one:
            held.append(one)
            await one.ask("go")
            assert one.take_steering() == ["too late"]
            assert not one.take_steering()

    asyncio.run(whole())


def test_without_a_turn_there_is_nothing_to_steer(talk: Talk) -> None:
    async def whole() -> None:
        async with talk(["Done."]) as one:
            with pytest.raises(UsageError, match="no turn runs"):
                one.steer("faster")

    asyncio.run(whole())
