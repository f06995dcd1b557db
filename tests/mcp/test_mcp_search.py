"""Many tools of servers: found by words, called through one tool, under the same approvals and rules."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hermes_exec_agent.mcp.tool_search import MOST_LISTED
from hermes_exec_agent.models import Models, ScriptedModel, ask
from hermes_exec_agent.models.protocol import estimate_tool_tokens
from hermes_exec_agent.runtime import open_conversation
from hermes_exec_agent.runtime.events import EventLog
from tests.rigs.bounded import until
from tests.rigs.mcp_server import MANY, TOOLS
from tests.tools.conftest import Somebody

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    import pytest

    from hermes_exec_agent.models.protocol import ToolSpec
    from tests.mcp.conftest import Rig, Talking

    Run = Callable[[Awaitable[Any]], Any]


async def find(talk: Any, query: str) -> list[dict[str, Any]]:
    """What ``tool_search`` returns for words."""
    envelope = await talk.tools["tool_search"].call({"query": query, "limit": 3}, talk.context)
    assert envelope.ok
    return [json.loads(line) for line in envelope.output.splitlines()]


def test_tools_of_over_1500_tokens_are_found_by_words_with_their_schemas(run: Run, rig: Rig, talking: Talking) -> None:
    async def use() -> None:
        async with talking(rig.settings("many")) as talk:
            await until(lambda: talk.tools)
            assert set(talk.tools) == {"tool_search", "tool_call"}
            assert estimate_tool_tokens(tool.spec for tool in talk.tools.values()) < MOST_LISTED / 3
            best, *others = await find(talk, "renaming a Warehouse")
            assert best["name"] == "mcp__rig__rename_warehouse"
            assert best["parameters"]["required"] == ["size"]
            assert len(others) == 2
            envelope = await talk.tools["tool_search"].call({"query": "zeppelin (\"'*"}, talk.context)
            assert envelope.output == f"none of {len({**TOOLS, **MANY})} tools has these words"

    run(use())


def test_few_tools_stay_in_the_request(run: Run, rig: Rig, talking: Talking) -> None:
    async def use() -> None:
        async with talking(rig.settings("many", tools=("echo", "show_till"))) as talk:
            await until(lambda: talk.tools)
            assert set(talk.tools) == {"mcp__rig__echo", "mcp__rig__show_till"}

    run(use())


def test_a_tool_whose_description_changed_is_not_found(run: Run, rig: Rig, talking: Talking) -> None:
    async def use() -> None:
        async with talking(rig.settings("many")) as talk:
            await until(lambda: talk.tools)
        rig.describe(rename_warehouse={"description": "Sells the warehouse."})
        async with talking(rig.settings("many")) as talk:
            await until(lambda: talk.connection.state == "ready")
            assert "mcp__rig__rename_warehouse" not in [each["name"] for each in await find(talk, "rename warehouse")]

    run(use())


class Asked:
    """The requests of a model's tools."""

    def __init__(self, model: ScriptedModel) -> None:
        self._model = model

    @property
    def tools(self) -> list[Sequence[ToolSpec]]:
        return [request.tools for request in self._model.requests]


def test_a_found_tool_is_called_recorded_and_approved_by_its_own_name_and_the_request_keeps_its_beginning(
    run: Run, rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "hermes.toml"
    command, args = rig.settings().command, json.dumps([*rig.settings().args, "many"])
    file.write_text(f'[mcp.rig]\ncommand = "{command}"\nargs = {args}\ntools = ["*"]\n')
    monkeypatch.setenv("HERMES_EXEC_CONFIG", str(file))
    name = "mcp__rig__show_till"
    model = ScriptedModel(
        [
            "hello",
            ask(("tool_search", {"query": "show till"})),
            ask(("tool_call", {"name": name, "arguments": {"size": 3}})),
            ask((name, {"size": 4})),
            ask(("tool_call", {"name": "mcp__rig__nothing", "arguments": {}})),
            "done",
        ]
    )
    person = Somebody(says=True)

    async def use(log: EventLog) -> str:
        async with open_conversation("local", models=Models(model), person=person, log=log) as conversation:
            await conversation.ask("first")
            await until(lambda: any("ready" in line for line in conversation.servers))
            assert (await conversation.ask("second")).text == "done"
            return conversation.id

    with EventLog(tmp_path / "log.sqlite") as log:
        id = run(use(log))
        events = log.events(id)
    assert [tool for tool, _ in person.asked] == [name, name]
    assert [event.data["name"] for event in events if event.kind == "call"] == [
        "tool_search", name, name, "tool_call"]  # fmt: skip
    assert rig.seen() == ["show_till", "show_till"]
    last = model.requests[-1]
    results = [json.loads(message.content) for message in last.messages if message.role == "tool"]
    assert results[1]["backend"] == "mcp:rig"
    assert "there is no tool 'mcp__rig__nothing'" in results[3]["error"]["message"]
    assert len({json.dumps([tool.to_wire() for tool in tools]) for tools in Asked(model).tools[1:]}) == 1
    for before, after in zip(model.requests[1:], model.requests[2:], strict=False):
        assert list(after.messages[: len(before.messages)]) == list(before.messages)


def test_a_call_of_a_found_tool_that_is_denied_is_not_sent(run: Run, rig: Rig, talking: Talking) -> None:
    async def use() -> None:
        async with talking(rig.settings("many"), says=False) as talk:
            await until(lambda: talk.tools)
            call = {"name": "mcp__rig__show_till", "arguments": {"size": 1}}
            envelope = await talk.tools["tool_call"].call(call, talk.context)
            assert envelope.error is not None
            assert envelope.error.type == "denied"
            assert [tool for tool, _ in talk.person.asked] == ["mcp__rig__show_till"]

    run(use())
    assert rig.seen() == []
