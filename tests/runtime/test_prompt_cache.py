"""Marks for the caches of Anthropic's models, with a server that bills a prompt as they do."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.models import ask, complete, load_models, say
from hermes_exec_agent.models.endpoint import Endpoint, Patience
from hermes_exec_agent.models.messages import Message
from hermes_exec_agent.models.prompt_cache import needs_marks
from hermes_exec_agent.runtime import open_conversation
from hermes_exec_agent.tools.tool import Approvals
from tests.rigs.endpoint import ScriptedEndpoint, Status, Streamed
from tests.runtime.conftest import Nobody

if TYPE_CHECKING:
    from hermes_exec_agent.runtime.events import EventLog

WRITE, READ = 1.25, 0.1
"""The prices of marked text when it is new and when it is cached, as parts of the price of other text."""


def bill(requests: list[dict[str, Any]]) -> tuple[float, float]:
    """Return the characters of all prompts, weighted by their prices with and without the cache."""
    cached: set[tuple[str, ...]] = set()
    paid = full = 0.0
    for body in requests:
        parts = [json.dumps(body["tools"])]
        marks: list[int] = []
        for wired in body["messages"]:
            message: dict[str, Any] = wired
            if not isinstance(message["content"], str):
                marks.append(len(parts) + 1)
                message = {**message, "content": message["content"][0]["text"]}
            parts.append(json.dumps(message))
        assert len(marks) <= 4
        sizes = [len(part) for part in parts]
        known = max((end for end in range(len(parts) + 1) if tuple(parts[:end]) in cached), default=0)
        last = max(marks, default=0)
        paid += READ * sum(sizes[:known]) + WRITE * sum(sizes[known:last]) + sum(sizes[max(known, last) :])
        full += sum(sizes)
        cached |= {tuple(parts[:end]) for end in marks}
    return paid, full


def test_twenty_requests_with_forty_calls_cost_less_than_a_third(log: EventLog) -> None:
    call = Streamed(ask(("terminal", {"command": "seq 60"})))
    rig = ScriptedEndpoint([*[call, call, Streamed(say("done"))] * 20])

    async def talk() -> None:
        table = {"provider": "custom", "base_url": rig.url, "model": "anthropic/claude-opus-4.6"}
        models = load_models({}, {"main": table})
        async with open_conversation(
            "local", models=models, person=Nobody(), log=log, approvals=Approvals("allow")
        ) as conversation:
            for number in range(20):
                async for _ in conversation.turn(f"request {number}"):
                    pass
        await models.close()

    with rig:
        asyncio.run(talk())
    assert (len(rig.requests), rig.complaints) == (60, [])
    paid, full = bill(rig.requests)
    assert paid <= 0.3 * full


def test_an_endpoint_that_refuses_marks_gets_none() -> None:
    def answer(body: dict[str, Any]) -> Any:
        if any(isinstance(message["content"], list) for message in body["messages"]):
            return Status(400, {"error": {"message": "messages.0.content.0.cache_control: unknown field"}})
        return say("hello")

    async def ask_twice() -> None:
        model = Endpoint("claude", base_url=rig.url, marks_cache=True, patience=Patience(first_wait_s=0.0))
        for _ in range(2):
            await complete(model, [Message("system", "Be brief."), Message("user", "hello")])
        await model.close()

    with ScriptedEndpoint([answer], forever=True) as rig:
        asyncio.run(ask_twice())
    assert len(rig.requests) == 3


@pytest.mark.parametrize(
    ("setting", "model", "expected"),
    [
        ("auto", "anthropic/claude-opus-4.6", True),
        ("auto", "claude-sonnet-4-6", True),
        ("auto", "nousresearch/hermes-4-70b", False),
        ("marked", "qwen3", True),
        ("off", "anthropic/claude-opus-4.6", False),
    ],
)
def test_the_name_of_the_model_or_its_setting_decides(setting: Any, model: str, expected: bool) -> None:
    assert needs_marks(setting, model) is expected
