"""The budgets of dollars: of a turn, and of a day."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import UsageError
from hermes_exec_agent.models import Models, ScriptedModel, ask, say
from hermes_exec_agent.models.protocol import Usage
from hermes_exec_agent.runtime import Options, Warned
from hermes_exec_agent.runtime.cost_meter import CostMeter, format_cost
from hermes_exec_agent.runtime.delegation import Delegator
from hermes_exec_agent.tools.planning import Delegate
from tests.runtime.conftest import shell

if TYPE_CHECKING:
    from hermes_exec_agent.models.protocol import Reply
    from hermes_exec_agent.runtime import Update
    from hermes_exec_agent.runtime.events import EventLog
    from tests.runtime.conftest import Talk


def costs(reply: Reply, dollars: float | None) -> Reply:
    """A reply that costs that much."""
    return replace(reply, usage=Usage(prompt=100, completion=10, cost=dollars))


LOOK = ("terminal", {"command": "true"})


class Unscripted(ScriptedModel):
    """A model of an endpoint, as far as its costs are concerned."""

    scripted = False


def test_a_turn_ends_with_a_last_word_once_its_dollars_are_spent(talk: Talk, log: EventLog) -> None:
    async def whole() -> None:
        told: list[Update] = []
        replies = [*(costs(ask(LOOK), 0.3) for _ in range(2)), costs(say("That is all."), 0.1), costs(say("On."), 0.1)]
        async with talk(replies, most_cost=0.5) as one:
            answer = await one.ask("go", told.append)
            assert (answer.outcome, answer.text, answer.steps) == ("budget", "That is all.", 3)
            assert answer.usage.cost == pytest.approx(0.7)
            (warned,) = [each for each in told if isinstance(each, Warned)]
            assert warned.content == "The budget of $0.50 for this request is spent: $0.60."
            told_model = [event.data["content"] for event in log.events(one.id) if event.kind == "warning"]
            assert told_model[0].startswith(f"{warned.content} Call no more tools.")
            assert log.events(one.id)[-1].data == {"reason": "cost"}
            assert (await one.ask("again")).outcome == "answered"

    asyncio.run(whole())


def test_the_replies_of_delegated_tasks_count_at_once_and_end_them_too(talk: Talk, log: EventLog) -> None:
    async def whole() -> None:
        replies = [
            costs(ask(("delegate_task", {"goal": "Look."})), 0.1),
            costs(ask(LOOK), 0.5),
            costs(say("My last word."), 0.1),  # the other has none, as it would cost
        ]
        model = ScriptedModel(replies)
        async with talk(model, [shell(), Delegate()], most_cost=0.5) as one:
            one._context.delegate = Delegator(Models(model), log)  # pyright: ignore[reportPrivateUsage]  as at its opening
            answer = await one.ask("go")
            assert (answer.outcome, answer.text) == ("budget", "My last word.")
            (other,) = log.children()[one.id]
            assert log.events(other)[-1].data["reason"] == "cost"
            assert answer.usage.cost == pytest.approx(0.7)
        assert log.cost_since(time.time() - 60) == pytest.approx(0.7)  # each reply once

    asyncio.run(whole())


def test_nothing_is_asked_on_a_day_whose_dollars_are_spent(
    talk: Talk, log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def whole() -> None:
        with monkeypatch.context() as patched:
            now = time.time()
            patched.setattr("hermes_exec_agent.runtime.events.log.time.time", lambda: now - 2 * 86_400)
            async with talk([costs(say("Long ago."), 5.0)]) as earlier:
                await earlier.ask("go")
        async with talk([costs(ask(LOOK), 0.3), costs(say("First."), 0.1)], most_cost_day=0.3) as first:
            assert (await first.ask("go")).outcome == "budget"
        async with talk([say("Never.")], most_cost_day=0.3) as second:
            with pytest.raises(UsageError, match=r"The budget of \$0.30 for today is spent: \$0.40"):
                await second.ask("go")
            assert [event.kind for event in log.events(second.id)] == ["started"]

    asyncio.run(whole())


def test_a_reply_of_unknown_cost_ends_the_turn_and_the_next_is_refused(talk: Talk) -> None:
    async def whole() -> None:
        model = Unscripted([costs(ask(LOOK), None), costs(say("The last word."), None), say("Never.")], name="m")
        async with talk(model, most_cost=0.5) as one:
            answer = await one.ask("go")
            assert (answer.outcome, answer.text) == ("budget", "The last word.")
            with pytest.raises(UsageError, match="the cost of m is unknown"):
                await one.ask("go")
            assert len(model.requests) == 2

    asyncio.run(whole())


def test_a_free_model_needs_no_budget(talk: Talk) -> None:
    async def whole() -> None:
        model = Unscripted([costs(ask(LOOK), 0.0), costs(say("Done."), 0.0)])
        async with talk(model, most_cost=0.01, most_cost_day=0.01) as one:
            assert (await one.ask("go")).outcome == "answered"

    asyncio.run(whole())


def test_the_configuration_has_the_limits_that_were_not_given() -> None:
    from hermes_exec.config.settings import AgentSettings

    agent = AgentSettings(most_cost=0.5, most_cost_day=3.0)
    assert Options().with_settings(agent).most_cost == 0.5
    assert Options(most_cost=0.1).with_settings(agent).most_cost == 0.1
    assert Options().with_settings(agent).most_cost_day == 3.0


@pytest.mark.parametrize(("dollars", "text"), [(1, "$1.00"), (0.25, "$0.25"), (0.0012, "$0.0012"), (12.5, "$12.50")])
def test_small_amounts_are_shown(dollars: float, text: str) -> None:
    assert format_cost(dollars) == text


def test_a_turn_counts_from_zero(log: EventLog) -> None:
    async def whole() -> tuple[str, Any]:
        meter = CostMeter(log, turn=0.5, day=None)
        meter.add(Usage(cost=0.5), "m", scripted=False)
        spent = await meter.find_end()
        await meter.begin_turn("m")
        return spent, await meter.find_end()

    spent, afresh = asyncio.run(whole())
    assert "for this request is spent" in spent
    assert not afresh


def test_tasks_that_wait_are_not_begun_once_the_dollars_are_spent(talk: Talk, log: EventLog) -> None:
    async def whole() -> int:
        tasks = ("delegate_task", {"tasks": [f"Look at {number}." for number in range(8)]})
        replies = [costs(ask(tasks), 0.5), costs(say("My last word."), 0.1), *[costs(say("No."), 0.1)] * 16]
        model = ScriptedModel(replies)
        async with talk(model, [shell(), Delegate()], most_cost=0.5) as one:
            one._context.delegate = Delegator(Models(model), log)  # pyright: ignore[reportPrivateUsage]  as at its opening
            assert (await one.ask("go")).outcome == "budget"
        return len(model.requests)

    assert asyncio.run(whole()) == 2


def test_a_task_of_an_earlier_turn_counts_for_that_turn(log: EventLog) -> None:
    async def whole() -> None:
        meter = CostMeter(log, turn=0.5, day=None)
        await meter.begin_turn("m")
        shared = meter.share()
        shared.add(Usage(cost=0.4), "m", scripted=False)
        await meter.begin_turn("m")
        assert await meter.find_end() == ""
        shared.add(Usage(cost=0.2), "m", scripted=False)
        assert "is spent: $0.60" in await shared.find_end()
        assert await meter.find_end() == ""

    asyncio.run(whole())
