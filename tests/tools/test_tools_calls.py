"""What a model writes is checked before anything is done, and every answer says what to do next."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.config.plugins import own_entry_points
from hermes_exec.errors import ConfigError
from hermes_exec_agent.tools.dispatch import parse_arguments
from hermes_exec_agent.tools.tool import Approvals, Context, to_safe_line
from hermes_exec_agent.tools.toolset import GROUP, create_tools
from tests.tools.conftest import Agent, Nobody, Somebody, agent_in

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

MOST_TOKENS = 3000
CHARACTERS_OF_A_TOKEN = 4
"""The usual estimate for English and JSON; the tokenizers of large models take fewer tokens for schemas."""


def with_agent(do: Callable[[Agent], Coroutine[Any, Any, Any]], person: Any = None, **approvals: Any) -> Any:
    async def done() -> Any:
        async with agent_in("local", person, **approvals) as agent:
            return await do(agent)

    return asyncio.run(done())


def specs() -> list[dict[str, Any]]:
    async def made(agent: Agent) -> list[dict[str, Any]]:
        return [tool.spec.to_wire() for tool in agent.tools]

    return list(with_agent(made))


def test_the_core_set_costs_a_prompt_at_most_three_thousand_tokens() -> None:
    text = json.dumps(specs(), separators=(",", ":"))
    assert len(text) / CHARACTERS_OF_A_TOKEN <= MOST_TOKENS


def objects(node: Any) -> list[dict[str, Any]]:
    if isinstance(node, list):
        return [found for each in node for found in objects(each)]  # pyright: ignore[reportUnknownVariableType]  JSON
    if not isinstance(node, dict):
        return []
    below = [found for each in node.values() for found in objects(each)]  # pyright: ignore[reportUnknownVariableType]  JSON
    return [node, *below] if node.get("type") == "object" else below  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  JSON


def test_schemas_are_flat_and_strict() -> None:
    for spec in specs():
        parameters = spec["function"]["parameters"]
        text = json.dumps(parameters)
        assert not {"$ref", "$defs", "anyOf", "oneOf", "allOf", "title"} & set(text.replace('"', " ").split()), text
        for each in objects(parameters):
            assert each["additionalProperties"] is False
            required = each.get("required", [])
            assert all(name in required or "default" in value for name, value in each["properties"].items())


@pytest.mark.parametrize(
    ("name", "arguments", "kind", "says"),
    [
        ("terminl", "{}", "unknown_tool", "the nearest one is 'terminal'"),
        ("terminal", "{", "arguments", "not a JSON object"),
        ("terminal", "[]", "arguments", "not an object"),
        ("terminal", '{"command": NaN}', "arguments", "NaN is not a number"),
        ("terminal", "[" * 100_000, "arguments", "nested too deeply"),
        ("terminal", "{}", "arguments", "'command' is missing. It takes: command, [timeout]"),
        ("terminal", '{"command": "ls", "timeout": 9999}', "arguments", "less than or equal to 600"),
        ("terminal", '{"command": "ls", "wordir": "/"}', "arguments", "the nearest one is 'workdir'"),
        ("process", '{"action": "stop"}', "arguments", "'list', 'poll'"),
        ("process", '{"action": "kill"}', "usage_error", "needs a session_id"),
        ("process", '{"action": "poll", "session_id": "no-such"}', "usage_error", "no-such"),
        ("patch", '{"mode": "replace", "old_string": "a"}', "usage_error", "needs a path"),
        ("search_files", '{"pattern": "("}', "usage_error", "not a regular expression"),
        ("search_files", '{"pattern": "a", "path": "/no-such"}', "usage_error", "there is no /no-such"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(name: str, arguments: str, kind: str, says: str) -> None:
    told = with_agent(lambda agent: agent.raw(name, arguments))
    assert (told["ok"], told["error"]["type"]) == (False, kind)
    assert says in told["error"]["message"]


def test_numbers_in_words_and_line_breaks_in_strings_are_taken_as_they_are_meant() -> None:
    told = with_agent(lambda agent: agent.raw("terminal", '{"command": "echo a\necho b", "timeout": "5"}'))
    assert told["output"] == "a\nb\n"


def test_success_is_told_and_what_is_empty_is_left_out() -> None:
    told = with_agent(lambda agent: agent("terminal", command="true"))
    assert (told["ok"], told["exit_code"]) == (True, 0)
    assert not {"output", "error", "truncated", "output_ref", "session_id", "note"} & set(told)


def test_no_arguments_at_all_are_an_empty_object() -> None:
    assert parse_arguments(" ") == {}


def test_a_person_reads_one_line_of_what_is_to_be_done() -> None:
    person = Somebody()
    with_agent(lambda agent: agent("terminal", command="true\n\x1b[2Jrm -rf /"), person, mode="ask")
    assert person.asked == [("terminal", "true ?[2Jrm -rf /")]


def test_nothing_is_hidden_from_a_person_behind_a_long_beginning() -> None:
    shown = to_safe_line(f"echo {'a' * 10_000}; rm -rf /")
    assert shown.startswith("echo aaa")
    assert shown.endswith("; rm -rf /")
    assert "characters are not shown" in shown


def test_an_answer_is_recorded() -> None:
    recorded: list[Any] = []

    async def asked(agent: Agent) -> None:
        agent.context.record = lambda kind, data: recorded.append((kind, data["tool"], data["answer"]))
        await agent("terminal", command="true")
        agent.context.person = Nobody()
        await agent("terminal", command="true")

    with_agent(asked, Somebody(), mode="ask")
    assert recorded == [("approval", "terminal", "approved"), ("approval", "terminal", "no person there")]


def test_one_tool_can_be_allowed_alone() -> None:
    async def tried(agent: Agent) -> list[bool]:
        return [(await agent("terminal", command="true"))["ok"], (await agent("execute_code", code=""))["ok"]]

    assert with_agent(tried, mode="deny", tools={"terminal": "allow"}) == [True, False]


def test_an_approval_is_one_of_three_words() -> None:
    with pytest.raises(ConfigError, match="ask, allow, deny"):
        Approvals("sometimes")  # type: ignore[arg-type]  # what a file may say


def test_a_lost_place_is_an_error_and_never_a_command_s_output() -> None:
    async def closed(agent: Agent) -> dict[str, Any]:
        await agent.context.terminal.close()
        return await agent("terminal", command="true")

    told = with_agent(closed)
    assert (told["ok"], told["error"]["type"]) == (False, "closed")
    assert "output" not in told
    assert "exit_code" not in told


def test_nobody_to_ask_is_an_answer_that_helps() -> None:
    told = with_agent(lambda agent: agent("clarify", question="Which one?"))
    assert told["error"]["type"] == "nobody"
    assert with_agent(lambda agent: agent("clarify", question="?"), Somebody(answer="both"))["output"] == "both"


def test_a_list_is_kept_for_the_conversation() -> None:
    async def kept(agent: Agent) -> str:
        await agent("todo", todos=[{"content": "look", "status": "completed"}, {"content": "mend"}])
        return str((await agent("todo"))["output"])

    assert with_agent(kept) == "1. [x] look\n2. [ ] mend"


def test_a_model_may_have_one_tool_alone_and_no_tool_that_is_not_there() -> None:
    async def names(wanted: Any) -> list[str]:
        async with hermes_exec.open("local") as terminal:
            return [tool.spec.name for tool in create_tools(Context(terminal, "local", Nobody(), "1"), wanted)]

    assert asyncio.run(names("minimal")) == ["terminal"]
    assert asyncio.run(names(["read_file", "terminal"])) == ["terminal", "read_file"]
    with pytest.raises(ConfigError, match="terminal"):
        asyncio.run(names(["terminl"]))
    with pytest.raises(ConfigError, match="minimal"):
        asyncio.run(names("small"))


def test_conversations_that_share_a_terminal_have_shells_and_lists_of_their_own() -> None:
    async def folders(agent: Agent) -> tuple[str, str]:
        other = Context(agent.context.terminal, "local", Nobody(), "2", approvals=Approvals("allow"))
        second = Agent(other, create_tools(other))
        try:
            await agent("terminal", command="cd /usr; mine=1")
            seen = await second("terminal", command="echo ${mine-none}; pwd")
            return str(seen["output"].split()[0]), str(seen["cwd"])
        finally:
            await other.close()

    mine, where = with_agent(folders)
    assert mine == "none"
    assert where != "/usr"


def test_what_was_kept_of_long_outputs_goes_with_the_conversation(tmp_path: Any) -> None:
    async def kept(agent: Agent) -> tuple[str, bool]:
        reference = (await agent("terminal", command="seq 1 9999"))["output_ref"]
        there = await agent.context.terminal.files.exists(reference)
        await agent.context.close()
        return reference, there and not await agent.context.terminal.files.exists(reference)

    reference, went = with_agent(kept)
    assert reference
    assert went


def test_to_keep_what_does_not_run_in_the_background_is_refused() -> None:
    async def keep(agent: Agent) -> dict[str, Any]:
        return await agent("terminal", command="true", keep=True)

    assert "keep applies to background commands alone" in with_agent(keep)["error"]["message"]


def test_every_tool_is_in_the_documentation() -> None:
    from pathlib import Path

    text = (Path(__file__).parents[2] / "docs/tools.md").read_text()
    assert not [name for name in own_entry_points(GROUP) if f"`{name}`" not in text]
