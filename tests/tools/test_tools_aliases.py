"""Calls of other agents' tools, which models write by habit: done as ours where that is no guess, else refused."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import hermes_exec
from hermes_exec.config.plugins import load_class, own_entry_points
from hermes_exec_agent.models import Models, ScriptedModel, ask
from hermes_exec_agent.models.endpoint import Endpoint
from hermes_exec_agent.models.messages import Message, ToolCall
from hermes_exec_agent.models.protocol import Reply, Usage
from hermes_exec_agent.runtime import Conversation, Options
from hermes_exec_agent.runtime.delegation import Delegator
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.tools.argument_conversion import adapt
from hermes_exec_agent.tools.base import BaseTool
from hermes_exec_agent.tools.dispatch import ResolvedCall, resolve
from hermes_exec_agent.tools.foreign_calls import ABSENT, ALIASES
from hermes_exec_agent.tools.tool import Approvals, Context
from hermes_exec_agent.tools.toolset import GROUP, create_tools
from tests.rigs.endpoint import ScriptedEndpoint, Streamed
from tests.rigs.published_tools import PUBLISHED
from tests.tools.conftest import Nobody, Somebody, agent_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hermes_exec_agent.tools.tool import Tool

PATCH = "*** Begin Patch\n*** Add File: a.txt\n+one\n*** End Patch"


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tool]:
    """All tools of a conversation by their names; none of them is run."""
    folder = tmp_path_factory.mktemp("log")

    async def made() -> dict[str, Tool]:
        async with hermes_exec.open("local") as terminal:
            models = Models(ScriptedModel([]))
            with EventLog(folder / "events") as log:
                delegate = Delegator(models, log)
                context = Context(terminal, "local", Nobody(), "1", models=models, delegate=delegate)
                return {tool.spec.name: tool for tool in create_tools(context, ["core", "vision", "web"])}

    found = asyncio.run(made())
    assert set(found) == set(own_entry_points(GROUP)) - {
        "cronjob",
        "memory",
        "propose_change",
        "session_search",
        "user_ask",
    }  # which need settings
    return found


def resolve_call(known: dict[str, Tool], name: str, /, **arguments: Any) -> ResolvedCall:
    return resolve(known, ToolCall("1", name, json.dumps(arguments)))


EXACT: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("Bash", {"command": "ls", "timeout": 120000, "description": "List"}, "terminal",
     {"command": "ls", "timeout": 120}),
    ("Bash", {"command": "a", "run_in_background": True, "timeout": 5}, "terminal",
     {"command": "a", "background": True}),
    ("bash", {"command": "ls"}, "terminal", {"command": "ls"}),
    ("functions.Bash", {"command": "ls", "timeout": None}, "terminal", {"command": "ls"}),
    ("BashOutput", {"bash_id": "j1"}, "process", {"action": "poll", "session_id": "j1"}),
    ("TaskOutput", {"task_id": "j1"}, "process", {"action": "wait", "session_id": "j1", "timeout": 30}),
    ("TaskOutput", {"task_id": "j1", "block": False}, "process", {"action": "poll", "session_id": "j1"}),
    ("KillShell", {"shell_id": "j1"}, "process", {"action": "kill", "session_id": "j1"}),
    ("Read", {"file_path": "/a", "offset": 0, "limit": 9}, "read_file", {"path": "/a", "offset": 1, "limit": 9}),
    ("Write", {"file_path": "/a", "content": "x"}, "write_file", {"path": "/a", "content": "x"}),
    ("Edit", {"file_path": "/a", "old_string": "x", "new_string": "", "replace_all": True}, "patch",
     {"mode": "replace", "path": "/a", "old_string": "x", "new_string": "", "replace_all": True}),
    ("MultiEdit", {"file_path": "/a", "edits": [{"old_string": "x", "new_string": "y"}]}, "patch",
     {"mode": "replace", "path": "/a", "old_string": "x", "new_string": "y"}),
    ("Grep", {"pattern": "a|b", "-i": True, "-n": True, "glob": "src/**/*.py", "path": "/r"}, "search_files",
     {"target": "content", "path": "/r/src", "output_mode": "files", "file_glob": "*.py", "pattern": "(?i:a|b)"}),
    ("Grep", {"pattern": "a", "output_mode": "content", "-A": 2, "-B": 2, "head_limit": 0}, "search_files",
     {"target": "content", "output_mode": "lines", "context": 2, "limit": 1000, "pattern": "a"}),
    ("Glob", {"pattern": "**/*.py"}, "search_files", {"target": "files", "pattern": "*.py"}),
    ("Glob", {"pattern": "/srv/**"}, "search_files", {"target": "files", "pattern": "*", "path": "/srv"}),
    ("LS", {"path": "/a b"}, "terminal", {"command": "ls -Ap -- '/a b'"}),
    ("TodoWrite", {"todos": [{"content": "a", "status": "pending", "activeForm": "Doing a"}]}, "todo",
     {"todos": [{"content": "a", "status": "pending"}]}),
    ("Task", {"description": "d", "prompt": "p", "subagent_type": "general-purpose"}, "delegate_task", {"goal": "p"}),
    ("Task", {"prompt": "p", "run_in_background": True}, "delegate_task", {"goal": "p", "background": True}),
    ("AskUserQuestion",
     {"questions": [{"question": "q", "header": "h", "multiSelect": False, "options": [{"label": "a"}]}]},
     "clarify", {"question": "q", "choices": ["a"]}),
    ("exec_command", {"cmd": "ls", "workdir": "/", "yield_time_ms": 1000, "shell": "bash", "login": True}, "terminal",
     {"command": "ls", "workdir": "/"}),
    ("shell", {"command": ["bash", "-lc", "echo 'a b'"], "timeout_ms": 2000}, "terminal",
     {"command": "bash -lc 'echo '\"'\"'a b'\"'\"''", "timeout": 2}),
    ("shell", {"command": ["apply_patch", PATCH]}, "patch", {"mode": "patch", "patch": PATCH}),
    ("shell_command", {"command": "ls | wc"}, "terminal", {"command": "ls | wc"}),
    ("write_stdin", {"session_id": "j1", "chars": "y\n"}, "process",
     {"action": "write", "session_id": "j1", "data": "y\n"}),
    ("write_stdin", {"session_id": "j1", "chars": ""}, "process", {"action": "poll", "session_id": "j1"}),
    ("apply_patch", {"input": PATCH}, "patch", {"mode": "patch", "patch": PATCH}),
    ("update_plan", {"explanation": "e", "plan": [{"step": "a", "status": "completed"}]}, "todo",
     {"todos": [{"content": "a", "status": "completed"}]}),
    ("str_replace_based_edit_tool", {"command": "view", "path": "/a", "view_range": [3, 5]}, "read_file",
     {"path": "/a", "offset": 3, "limit": 3}),
    ("str_replace_editor", {"command": "create", "path": "/a", "file_text": "x"}, "write_file",
     {"path": "/a", "content": "x", "create": True}),
    ("str_replace_editor", {"command": "str_replace", "path": "/a", "old_str": "x", "new_str": "y"}, "patch",
     {"mode": "replace", "path": "/a", "old_string": "x", "new_string": "y"}),
    ("terminal", {"cmd": "ls", "pty": False, "notify_on_complete": True}, "terminal", {"command": "ls"}),
    ("Terminal", {"command": "ls"}, "terminal", {"command": "ls"}),
    ("read_file", {"file_path": "/a"}, "read_file", {"path": "/a"}),
    ("write_file", {"file_path": "/a", "content": "", "cross_profile": False}, "write_file",
     {"path": "/a", "content": ""}),
    ("patch", {"path": "/a", "old_string": "x", "new_string": "y", "patch": ""}, "patch",
     {"path": "/a", "old_string": "x", "new_string": "y", "patch": "", "mode": "replace"}),
    ("search_files", {"pattern": "a", "output_mode": "files_only"}, "search_files",
     {"pattern": "a", "output_mode": "files"}),
    ("todo", {"todos": [{"id": 1, "content": "a", "status": "pending"}], "merge": True}, "todo",
     {"todos": [{"id": "1", "content": "a", "status": "pending"}], "merge": True}),
    ("todo", {"todos": '[{"content": "a"}]'}, "todo", {"todos": [{"content": "a"}]}),
    ("delegate_task", {"tasks": [{"goal": "g", "role": "leaf"}, {"goal": "h", "context": "c"}], "background": False},
     "delegate_task", {"tasks": ["g", "h\n\nc"], "background": False}),
    ("skill_manage", {"action": "delete", "name": "a"}, "skill_manage", {"action": "archive", "name": "a"}),
    ("skill_run", {"name": "a", "arguments": {"rows": [1]}}, "skill_run", {"name": "a", "arguments": '{"rows": [1]}'}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "ours", "expected"), EXACT, ids=[each[0] for each in EXACT])
def test_a_call_that_means_the_same_is_ours(
    known: dict[str, Tool], name: str, arguments: dict[str, Any], ours: str, expected: dict[str, Any]
) -> None:
    found = resolve_call(known, name, **arguments)
    assert found.failure is None, found.failure
    assert (found.call.name, found.arguments) == (ours, expected)
    assert json.loads(found.call.arguments) == expected
    assert found.call.id == found.written.id
    assert found.written.name == name
    load_class(own_entry_points(GROUP)[ours], BaseTool).arguments_type.model_validate(found.arguments)
    assert found.is_rewritten


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("Bash", {"command": "a", "timeout": 120}, "milliseconds"),
    ("Bash", {"command": "a", "timeout": 1500}, "whole number of seconds"),
    ("Bash", {"command": "a", "dangerouslyDisableSandbox": True}, "conversation's place"),
    ("bash", {"command": "a", "timeout": 60000}, "terminal(command=…, timeout=SECONDS)"),
    ("bash", {"restart": True}, "terminal"),
    ("Edit", {"file_path": "/a", "old_string": "", "new_string": "x"}, "write_file"),
    ("MultiEdit", {"file_path": "/a", "edits": [{}, {}]}, "once for each"),
    ("Grep", {"pattern": "a", "type": "py"}, "file_glob"),
    ("Grep", {"pattern": "a", "multiline": True}, "terminal"),
    ("Grep", {"pattern": "a", "output_mode": "content", "-A": 3}, "context"),
    ("Grep", {"pattern": "[[:alpha:]]"}, "Python regular expression"),
    ("Glob", {"pattern": "*.{ts,tsx}"}, "without braces"),
    ("Glob", {"pattern": "src/*.py"}, "path='FOLDER'"),
    ("Task", {"description": "d", "prompt": "p", "subagent_type": "Explore"}, "delegate_task"),
    ("Task", {"description": "d", "prompt": "p", "subagent_type": "general-purpose", "model": "x"}, "model: no equal"),
    ("TodoWrite", {"todos": []}, "cancelled"),
    ("exec_command", {"cmd": "a", "tty": True}, "terminal"),
    ("exec_command", {"cmd": "a", "sandbox_permissions": "require_escalated"}, "a person approves"),
    ("shell", {"command": ["ls"], "timeout_ms": 10}, "milliseconds"),
    ("write_stdin", {"session_id": "j", "chars": "\x03"}, "action='kill'"),
    ("str_replace_editor", {"command": "insert", "path": "/a", "insert_line": 2, "new_str": "x"}, "patch(mode='patch'"),
    ("str_replace_editor", {"command": "undo_edit", "path": "/a"}, "write_file"),
    ("read_file", {"path": "/a", "file_path": "/b"}, "mean the same and differ"),
    ("patch", {"path": "/a"}, "mode='replace'"),
    ("terminal", {"command": "a", "pty": True}, "no terminal"),
    ("delegate_task", {"tasks": [{"goal": "a"}], "goal": "b"}, "either goal or tasks"),
    ("skill_manage", {"action": "edit", "name": "a", "content": "x"}, "*** Add File"),
    ("memory", {"target": "user"}, "write_file"),
    ("Skill", {"skill": "x"}, "skill_run"),
    ("edit", {}, "the tool for this is patch"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "says"), REFUSED, ids=[f"{name}-{says}" for name, _, says in REFUSED])
def test_a_call_in_doubt_is_refused_with_what_to_write(
    known: dict[str, Tool], name: str, arguments: dict[str, Any], says: str
) -> None:
    found = resolve_call(known, name, **arguments)
    assert found.tool is None
    assert found.failure is not None
    assert says in found.failure.message, found.failure.message


SAMPLES: dict[str, list[Any]] = {
    "string": ["a", ""], "number": [0, 2, 3000, 1.5], "integer": [0, 1, 3], "boolean": [False, True], "array": [[]],
}  # fmt: skip


def samples(schema: dict[str, Any]) -> list[Any]:
    if "enum" in schema:
        return list(schema["enum"])
    if schema["type"] == "array" and schema["items"].get("type") == "object":
        return [[], [fill_required(schema["items"])]]
    if schema["type"] == "array":
        return [[], samples(schema["items"])[:1]]
    return SAMPLES[schema["type"]]


def fill_required(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        key: samples(schema["properties"][key])[-1 if key in {"todos", "plan"} else 0] for key in schema["required"]
    }


def generate_calls(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Calls with what a schema requires and up to two more arguments, with every sample of each."""
    more = [(key, value) for key, each in schema["properties"].items() for value in samples(each)]
    for one, two in itertools.combinations_with_replacement(more, 2):
        yield {**fill_required(schema), one[0]: one[1], two[0]: two[1]}


BOUNDS = {"greater_than_equal", "less_than_equal", "string_too_short", "int_from_float", "missing"}
"""What may be wrong with arguments whose names and types are ours."""


def wrong_with(tool: Tool | None, arguments: dict[str, Any]) -> set[str]:
    assert tool is not None
    try:
        load_class(own_entry_points(GROUP)[tool.spec.name], BaseTool).arguments_type.model_validate(arguments)
    except ValidationError as error:
        return {each["type"] for each in error.errors()}
    return set()


@pytest.mark.parametrize("name", PUBLISHED)
def test_each_published_call_is_ours_or_refused_with_a_tool_of_ours(known: dict[str, Tool], name: str) -> None:
    assert name in known or name in ALIASES or name in ABSENT
    done = 0
    for arguments in [fill_required(PUBLISHED[name]), *generate_calls(PUBLISHED[name])]:
        found = resolve_call(known, name, **arguments)
        if found.failure is not None:
            assert any(each in found.failure.message for each in known), found.failure.message
            continue
        complaints = wrong_with(found.tool, found.arguments)
        assert complaints <= BOUNDS, (arguments, found.arguments)
        done += not complaints
    assert done or name in ABSENT


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 200_000) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_no_arguments_of_a_known_name_make_a_mistake_of_ours(known: dict[str, Tool], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(PUBLISHED)))
    keys = st.sampled_from(sorted(PUBLISHED[name]["properties"]))
    arguments = data.draw(st.dictionaries(keys, JSON, max_size=5))
    found = resolve_call(known, name, **arguments)
    assert (found.tool is None) == (found.failure is not None)


def test_every_alias_names_a_tool_of_ours() -> None:
    named = {each.strip() for alias in ALIASES.values() for each in alias.ours.replace(" or ", ",").split(",")}
    assert named <= set(own_entry_points(GROUP))
    assert not set(ALIASES) & set(own_entry_points(GROUP))


def test_a_conversation_with_one_tool_says_so(known: dict[str, Tool]) -> None:
    found = resolve_call({"terminal": known["terminal"]}, "Read", file_path="/a")
    assert found.failure is not None
    assert "not among the tools here: terminal" in found.failure.message


# Broken JSON


@pytest.mark.parametrize(
    ("name", "text", "arguments"),
    [
        ("read_file", '{"path": "/etc/hostname", "lim', {"path": "/etc/hostname"}),
        ("Read", "{'file_path': '/a', 'limit': 3}", {"path": "/a", "limit": 3}),
        ("search_files", '{"pattern": "a" "path": "/b"}', {"pattern": "a", "path": "/b"}),
        ("str_replace_editor", '{"command": "view", "path": "/a"', {"path": "/a"}),
    ],
)
def test_broken_json_is_repaired_for_calls_that_only_read(
    known: dict[str, Tool], name: str, text: str, arguments: dict[str, Any]
) -> None:
    found = resolve(known, ToolCall("1", name, text))
    assert found.arguments == arguments
    assert "broken JSON" in found.notes[0]
    assert "were repaired" in found.notes[0]
    assert found.written.arguments == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("terminal", '{"command": "rm -rf /srv/data/old'),
        ("Bash", '{"command": "ls'),
        ("todo", '{"todos": [{"content": "a"}'),
        ("skill_run", '{"name": "a", "arguments": "{}"'),
        ("str_replace_editor", '{"command": "create", "path": "/a", "file_text": "x'),
        ("read_file", '{"path": "/a"}{"path": "/b"}'),
        ("read_file", '{"path":'),
        ("read_file", "/etc/hostname"),
    ],
)
def test_other_broken_json_is_refused_with_where_it_breaks(known: dict[str, Tool], name: str, text: str) -> None:
    found = resolve(known, ToolCall("1", name, text))
    assert found.tool is None
    assert found.failure is not None
    assert " of " + str(len(text)) in found.failure.message
    assert "Nothing was done" in found.failure.message


def test_json_text_of_the_arguments_and_a_bare_patch_are_taken(known: dict[str, Tool]) -> None:
    assert resolve(known, ToolCall("1", "terminal", json.dumps('{"command": "ls"}'))).arguments == {"command": "ls"}
    assert resolve(known, ToolCall("1", "apply_patch", PATCH)).arguments == {"mode": "patch", "patch": PATCH}


# With a real place


def test_the_tools_do_it_and_the_note_says_what_ran(tmp_path: Path) -> None:
    path = str(tmp_path / ("a" * 60))

    async def talk() -> None:
        async with agent_in("local") as agent:
            told = await agent("Bash", command="echo hi", timeout=120_000)
            assert told["output"] == "hi\n"
            note = (
                'timeout=120000 is in milliseconds, timeout in seconds; ran as terminal(command="echo hi", timeout=120)'
            )
            assert told["note"] == note
            editor = "str_replace_based_edit_tool"
            assert (await agent(editor, command="create", path=path, file_text="one\n"))["ok"]
            again = await agent(editor, command="create", path=path, file_text="two\n")
            assert "is there already" in again["error"]["message"]
            assert again["note"].endswith('taken as write_file(path=…, content="two\\n", create=true)')
            assert (await agent("Edit", file_path=path, old_string="one", new_string="1"))["ok"]
            assert (await agent(editor, command="view", path=path))["output"] == "1|1"
            await agent("todo", todos=[{"id": "a", "content": "first", "status": "pending"}])
            told = await agent(
                "todo", merge=True,
                todos=[{"id": "a", "content": "first", "status": "completed"}, {"id": "b", "content": "second"}],
            )  # fmt: skip
            assert told["output"] == "1. [x] first\n2. [ ] second"
            await agent("TodoWrite", todos=[{"content": "other", "status": "pending", "activeForm": "x"}])
            refused = await agent("todo", merge=True, todos=[{"id": "a", "content": "first"}])
            assert "send all of it without merge" in refused["error"]["message"]

    asyncio.run(talk())


def test_an_approval_sees_our_name_and_our_arguments(tmp_path: Path) -> None:
    person = Somebody(says=False)

    async def talk() -> dict[str, Any]:
        async with agent_in("local", person, mode="allow", tools={"write_file": "deny", "terminal": "ask"}) as agent:
            for name, arguments in (("exec_command", {"cmd": "touch x"}), ("LS", {"path": "/"})):
                assert (await agent(name, **arguments))["error"]["type"] == "denied"
            return await agent("Write", file_path=str(tmp_path / "a"), content="x")

    assert asyncio.run(talk())["error"]["type"] == "denied"
    assert person.asked == [("terminal", "touch x"), ("terminal", "ls -Ap -- /")]
    assert not list(tmp_path.iterdir())


def test_a_conversation_records_both_and_sends_back_what_the_model_wrote(tmp_path: Path) -> None:
    """Over HTTP: foreign names, an object for text, cut JSON; each call is done once or not at all."""
    count = tmp_path / "count"
    (tmp_path / "read.txt").write_text("secret of the file\n")
    written = [
        ToolCall("c1", "Bash", json.dumps({"command": f"echo x >> {count}", "timeout": 5000})),
        ToolCall("c2", "read_file", json.dumps({"path": str(tmp_path / "read.txt")})[:-1]),
        ToolCall("c3", "terminal", json.dumps({"command": f"echo y >> {count}"})[:-2]),
        ToolCall("c4", "Bash", json.dumps({"command": f"echo x >> {count}", "timeout": 5000})),
    ]
    first, *others = [Reply(Message("assistant", "", (call,)), "tool_calls", Usage()) for call in written]
    replies: list[Streamed | Reply | str] = [Streamed(first, shape="object"), *others, "done"]

    async def talk(url: str) -> tuple[list[Any], Any]:
        async with hermes_exec.open("local") as terminal:
            context = Context(terminal, "local", Nobody(), "", approvals=Approvals("allow"))
            with EventLog(tmp_path / "events") as log:
                models = Models(Endpoint("m", base_url=url))
                conversation = Conversation(
                    models=models, tools=create_tools(context, ["terminal", "read_file"]), context=context,
                    log=log, options=Options(),
                )  # fmt: skip
                await conversation.begin()
                answer = await conversation.ask("go")
                await context.close()
                return log.events(context.conversation), answer

    with ScriptedEndpoint(replies) as endpoint:
        events, answer = asyncio.run(talk(endpoint.url))
    assert (answer.text, answer.calls) == ("done", 4)
    assert count.read_text() == "x\nx\n"
    assert endpoint.complaints == []
    sent = [call for message in endpoint.requests[-1]["messages"] for call in message.get("tool_calls", ())]
    assert [(each["id"], each["function"]["name"]) for each in sent] == [(call.id, call.name) for call in written]
    assert [each["function"]["arguments"] for each in sent] == [call.arguments for call in written]
    calls = {event.data["id"]: event.data for event in events if event.kind == "call"}
    assert calls["c1"]["name"] == "terminal"
    assert json.loads(calls["c1"]["arguments"]) == {"command": f"echo x >> {count}", "timeout": 5}
    assert calls["c1"]["written"] == {"name": "Bash", "arguments": written[0].arguments}
    assert calls["c2"]["name"] == "read_file"
    assert calls["c3"] == {"id": "c3", "name": "terminal"}
    results = {event.data["id"]: json.loads(event.data["content"]) for event in events if event.kind == "result"}
    assert "secret of the file" in results["c2"]["output"]
    assert "were repaired" in results["c2"]["note"]
    assert "Nothing was done" in results["c3"]["error"]["message"]


def test_guardrails_count_a_call_and_its_alias_as_one(tmp_path: Path) -> None:
    """The same search under two names gives the same again."""
    names = ["read_file", "Read"] * 4
    path = str(tmp_path / "a")
    (tmp_path / "a").write_text("x\n")
    replies = [ask((name, {"path" if name == "read_file" else "file_path": path})) for name in names]

    async def talk() -> Any:
        async with hermes_exec.open("local") as terminal:
            context = Context(terminal, "local", Nobody(), "", approvals=Approvals("allow"))
            with EventLog(tmp_path / "events") as log:
                conversation = Conversation(
                    models=Models(ScriptedModel([*replies, "no more"])), tools=create_tools(context), context=context,
                    log=log, options=Options(unattended=True),
                )  # fmt: skip
                await conversation.begin()
                answer = await conversation.ask("go")
                await context.close()
                return answer

    answer = asyncio.run(talk())
    assert (answer.outcome, answer.calls) == ("stopped", 5)


def test_a_schema_that_is_only_true_takes_any_argument() -> None:
    assert adapt("theirs", {"x": 1}, {"properties": {"x": True}}) == ({"x": 1}, [])
