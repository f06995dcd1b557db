"""Budgets and guardrails: a turn ends, whatever the model does."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_exec_agent.errors import ModelError
from hermes_exec_agent.models import ask
from hermes_exec_agent.runtime import Budget, Guardrails, Warned
from hermes_exec_agent.runtime.guardrails import GuardrailMonitor, ObservedCall, Threshold
from hermes_exec_agent.tools.envelope import Envelope, Failure
from tests.rigs.endpoint import find_message_fault
from tests.runtime.conftest import Doing, shows

if TYPE_CHECKING:
    from hermes_exec_agent.runtime import Answer, Conversation
    from tests.runtime.conftest import Talk


def never_learns(*_: object) -> Any:
    """Asks for the same again and again."""
    return ask(("terminal", {"command": "false"}))


def held(talk: Talk, replies: Any, *tools: Any, **options: Any) -> tuple[Answer, Conversation, list[Warned]]:
    """One turn."""

    async def whole() -> tuple[Answer, Conversation, list[Warned]]:
        told: list[object] = []
        async with talk(replies, list(tools) or None, **options) as conversation:
            answer = await conversation.ask("go", told.append)
        return answer, conversation, [update for update in told if isinstance(update, Warned)]

    return asyncio.run(whole())


def test_a_budget_is_never_exceeded_by_any_number_of_threads() -> None:
    budget, taken = Budget(100), [0] * 8

    def take(number: int) -> None:
        while budget.take():
            taken[number] += 1

    threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sum(taken), budget.left) == (100, 0)


@given(st.integers(0, 20), st.lists(st.booleans(), max_size=80))
def test_refunds_never_make_a_budget_larger(limit: int, steps: list[bool]) -> None:
    budget = Budget(limit)
    for refund in steps:
        budget.refund() if refund else budget.take()
        assert 0 <= budget.left <= limit


def test_a_spent_budget_ends_with_a_summary_and_runs_nothing_more(talk: Talk) -> None:
    ran: list[object] = []
    tool = Doing("work", lambda given, _: ran.append(given), {"n": {"type": "integer"}})
    replies = [*(ask(("work", {"n": n})) for n in range(3)), ask(("work", {"n": 9}), text="I did three.")]
    answer, conversation, told = held(talk, replies, tool, budget=3)
    assert (answer.outcome, answer.steps) == ("budget", 4)
    assert answer.text == (
        "I did three.\n\nThis list is the program's own, as the model went on calling tools:\n\nAsked: go\n\n"
        "Stopped: The budget of 3 steps for this request is spent.\n\nDone:\n\n- work (3 times)\n\nFailed: nothing\n\n"
        "Asked for and not run:\n\n- work\n\nLeft running: nothing"
    )
    assert ran == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert told[0].reason == "budget"
    assert not conversation.messages[-1].tool_calls


def test_a_spent_budget_ends_well_even_if_the_model_is_down(talk: Talk) -> None:
    answer, _, _ = held(talk, [never_learns, ModelError("down")], budget=1)
    assert answer.outcome == "budget"
    assert "down" in answer.text


def test_a_program_of_many_calls_costs_no_step(talk: Talk) -> None:
    tool = shows("execute_code", "ran", changes=True)
    replies = [*(ask(("execute_code", {"n": n})) for n in range(6)), "done"]
    assert held(talk, replies, tool, budget=2)[0].text == "done"


def test_a_model_that_never_learns_is_warned_and_stopped(talk: Talk) -> None:
    answer, conversation, told = held(talk, [*[never_learns] * 5, "I give up."], unattended=True)
    assert (answer.outcome, answer.text, answer.calls) == ("stopped", "I give up.", 5)
    assert told[0].reason in ("identical_failures", "tool_failures")
    assert "[notice of the agent's program]" in conversation.messages[5].content
    assert not find_message_fault([message.to_wire() for message in conversation.messages[:-1]])


def test_with_somebody_watching_it_is_only_warned(talk: Talk) -> None:
    answer, _, told = held(talk, [*[never_learns] * 12, "at last"])
    assert answer.text == "at last"
    assert len(told) >= 10


def test_one_tool_failing_in_many_ways_is_noticed(talk: Talk) -> None:
    replies = [ask(("terminal", {"command": f"exit_{n}"})) for n in range(8)]
    answer, _, told = held(talk, [*replies, "no"], unattended=True)
    assert answer.outcome == "stopped"
    assert {warned.reason for warned in told} == {"tool_failures"}


def test_to_wait_patiently_is_no_circle(talk: Talk) -> None:
    tool = shows("process", "still running", changes=True)
    replies = [*[ask(("process", {"action": "wait"}))] * 20, "done"]
    answer, _, told = held(talk, replies, tool, unattended=True)
    assert (answer.text, told) == ("done", [])


def seen(
    name: str, arguments: Any, *, ok: bool = True, output: str = "", changes: bool = True, took: float = 0.0
) -> ObservedCall:
    error = None if ok else Failure("X", "x")
    return ObservedCall(
        name, json.dumps(arguments), Envelope(ok, "local", output, duration_s=took, error=error), changes
    )


def stops_at(*calls: ObservedCall, rounds: int = 30) -> int | None:
    """After how many rounds of these calls a turn is stopped."""
    guard = GuardrailMonitor(Guardrails(), stops=True, patient=frozenset())
    for number in range(1, rounds + 1):
        verdicts = [guard.observe(call) for call in calls]
        if any(verdict.stop for verdict in verdicts):
            return number
    return None


def test_looking_at_the_same_again_and_again_is_stopped() -> None:
    assert stops_at(seen("read_file", {"path": "a"}, output="x", changes=False)) == 5


def test_how_long_it_took_makes_no_difference() -> None:
    guard = GuardrailMonitor(Guardrails(), stops=True, patient=frozenset())
    calls = [seen("read_file", {"path": "a"}, output="x", changes=False, took=n / 7) for n in range(5)]
    assert [guard.observe(call).stop for call in calls] == [False] * 4 + [True]


def test_the_order_of_arguments_makes_no_difference() -> None:
    guard = GuardrailMonitor(Guardrails(), stops=True, patient=frozenset())
    both = [seen("f", {"a": 1, "b": 2}, changes=False), seen("f", {"b": 2, "a": 1}, changes=False)] * 3
    assert any(guard.observe(call).stop for call in both)


def test_going_to_and_fro_between_two_calls_is_stopped() -> None:
    assert stops_at(seen("terminal", {"command": "cd a"}), seen("terminal", {"command": "cd .."})) is not None


def test_writing_the_same_and_failing_the_same_test_is_stopped() -> None:
    write, check = (
        seen("write_file", {"content": "x"}),
        seen("terminal", {"command": "pytest"}, ok=False, output="1 failed"),
    )
    assert stops_at(write, check) is not None


def test_mending_and_testing_again_is_not_stopped() -> None:
    guard = GuardrailMonitor(Guardrails(), stops=True, patient=frozenset())
    for number in range(30):
        assert not guard.observe(seen("write_file", {"content": number})).stop
        assert not guard.observe(seen("pytest", {}, ok=True, output="1 failed")).stop


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.booleans(), st.booleans()), max_size=60))
def test_a_guard_that_may_not_stop_never_does(calls: list[tuple[str, str, bool, bool]]) -> None:
    guard = GuardrailMonitor(Guardrails(), stops=False, patient=frozenset())
    for name, argument, ok, changes in calls:
        assert not guard.observe(seen(name, argument, ok=ok, changes=changes)).stop


@pytest.mark.parametrize("sign", ["identical_failures", "tool_failures", "same_results", "same_effects"])
def test_each_sign_can_be_switched_off(sign: str) -> None:
    signs = ("identical_failures", "tool_failures", "same_results", "same_effects")
    off: dict[str, Threshold] = {each: Threshold(0, 0) for each in signs}
    off[sign] = Threshold(1, 2)
    ok, changes = sign.startswith("same"), sign == "same_effects"
    guard = GuardrailMonitor(Guardrails(**off), stops=True, patient=frozenset())
    verdicts = [guard.observe(seen("f", {}, ok=ok, changes=changes)) for _ in range(2)]
    assert [(verdict.reason, verdict.stop) for verdict in verdicts] == [(sign, False), (sign, True)]


def test_a_looping_model_of_any_kind_is_stopped(talk: Talk) -> None:
    again = [ask(("terminal", {"command": "echo hi"}))] * 40
    answer, _, _ = held(talk, again, unattended=True)
    assert answer.outcome == "stopped"
    assert answer.calls <= 8
