"""The same calls give the same results in every place that this machine has."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.tools.tool import Approvals, Mode
from tests.rigs.breadth import thorough
from tests.tools.conftest import ALL_PLACES, PLACES, Agent, Nobody, Somebody, agent_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec.backend import Backend

pytestmark = pytest.mark.timeout(300)
everywhere = pytest.mark.parametrize("place", PLACES, indirect=True)
SECRETS = ("OPENAI_API_KEY", "MEMORY_DB_URL", "OPENROUTER_API_KEY", "ANTHROPIC_API_KEY")

SCRIPT: list[tuple[str, dict[str, Any]]] = [
    ("terminal", {"command": "mkdir -p DIR/sub && cd DIR && greet() { echo hello $1; }"}),
    ("terminal", {"command": "greet you; exit 3"}),
    ("terminal", {"command": "pwd", "workdir": "sub"}),
    ("write_file", {"path": "sub/a.py", "content": "def one():\n    return 1\n"}),
    ("patch", {"mode": "replace", "path": "sub/a.py", "old_string": "return 1", "new_string": "return 2"}),
    ("patch", {"mode": "patch", "patch": "*** Begin Patch\n*** Add File: b.txt\n+zwei\n*** Update File: sub/a.py\n"
               "@@ def one():\n-    return 2\n+    return 3\n*** End Patch\n"}),
    ("read_file", {"path": "sub/a.py"}),
    ("read_file", {"path": "nothing"}),
    ("search_files", {"pattern": r"return \d"}),
    ("search_files", {"pattern": "*.py", "target": "files"}),
    ("execute_code", {"code": "import tools\nn = tools.read_file('sub/a.py')['output'].count('return')\n"
                      "print(n, tools.terminal(command='cat b.txt')['output'].strip())"}),
    ("terminal", {"command": "echo started; sleep 60", "timeout": 1}),
    ("terminal", {"command": "seq 1 30000"}),
    ("terminal", {"command": "cat; echo over", "background": True}),
]  # fmt: skip


async def told(agent: Agent, folder: str) -> list[dict[str, Any]]:
    """What every call of the script gives, without what differs from run to run."""
    answers: list[dict[str, Any]] = []
    for name, arguments in SCRIPT:
        answer = await agent.raw(name, json.dumps(arguments).replace("DIR", folder))
        answers.append(answer)
    session = answers[-1]["session_id"]
    answers.append(await agent("process", action="submit", session_id=session, data="typed"))
    answers.append(await agent("process", action="close", session_id=session))
    answers.append(await agent("process", action="wait", session_id=session))
    answers.append(await agent("process", action="log", session_id=session))
    answers.append(await agent("read_file", path=answers[-6]["output_ref"], offset=30_000))
    return answers


@pytest.mark.parametrize("place", ALL_PLACES, indirect=True)
@pytest.mark.slow
@pytest.mark.required
@thorough
def test_the_same_calls_give_the_same_in_every_place(place: Callable[[], Backend], tmp_path_factory: Any) -> None:
    folder = f"/tmp/hermes-agent-script-{os.urandom(4).hex()}"  # other runs may be on the same machine

    async def here() -> tuple[str, list[dict[str, Any]]]:
        async with agent_in(place()) as agent:
            try:
                return agent.context.place, await told(agent, folder)
            finally:
                await agent("terminal", command=f"cd /; rm -rf {folder}")

    name, answers = asyncio.run(here())
    assert {each["backend"] for each in answers} == {name}  # where it ran is always said, and never another place
    (_, exited, where, _, _, patched, read, missing, found, files, ran, stopped, long, begun,
     typed, _, waited, log, last) = answers  # fmt: skip
    assert (exited["ok"], exited["exit_code"], exited["output"], exited["cwd"]) == (False, 3, "hello you\n", folder)
    assert where["output"] == f"{folder}/sub\n"
    assert patched["ok"], patched
    assert read["output"] == "1|def one():\n2|    return 3"
    assert missing["error"]["type"] == "missing"
    assert found["output"] == "sub/a.py:2:    return 3"
    assert files["output"] == "sub/a.py"
    assert (ran["ok"], ran["output"], ran["note"]) == (True, "1 zwei\n", "2 calls of tools")
    assert stopped["error"]["type"] == "timeout"
    assert "started\n".startswith(stopped.get("output", ""))  # where all stands still, it comes to nothing
    assert long["truncated"]
    assert begun["session_id"] == typed["session_id"]
    assert waited["note"] == "ended exit code 0"
    assert log["output"] == "typed\nover"
    assert last["output"] == "30000|30000"


@everywhere
@pytest.mark.slow
def test_no_key_and_no_database_reaches_a_tool_and_its_shells_know_whose_they_are(
    place: Callable[[], Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "planted-value")

    async def seen() -> list[str]:
        async with agent_in(place()) as agent:
            whole = "import os\nfor item in os.environ.items(): print(*item, sep='=')"
            job = await agent("terminal", command="env", background=True)
            await agent("process", action="wait", session_id=job["session_id"])
            answers = [
                await agent("terminal", command="env"),
                await agent("terminal", command="env", workdir="/"),
                await agent("execute_code", code=whole),
                await agent("process", action="log", session_id=job["session_id"]),
            ]
            return [each["output"] for each in answers]

    for output in asyncio.run(seen()):
        assert "planted-value" not in output
        assert "HERMES_EXEC_AGENT=scripted" in output


@everywhere
@pytest.mark.slow
def test_what_is_denied_is_denied_in_every_place(place: Callable[[], Backend]) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("terminal", {"command": "echo x > made"}),
        ("write_file", {"path": "made", "content": ""}),
        ("patch", {"mode": "patch", "patch": "*** Begin Patch\n*** Add File: made\n+x\n*** End Patch"}),
        ("execute_code", {"code": "open('made', 'w')"}),
    ]

    no, yes = Somebody(says=False), Somebody()

    async def tried() -> list[list[str]]:
        answers: list[list[str]] = []
        async with agent_in(place()) as agent:
            workspace = agent.context.workspace
            made = await workspace.run("cd $(mktemp -d) && pwd -P", timeout=30)
            workspace.root = workspace.start = made.output.strip()
            tries: list[tuple[Any, Mode]] = [(Nobody(), "ask"), (no, "ask"), (yes, "deny")]
            for person, mode in tries:
                agent.context.person, agent.context.approvals = person, Approvals(mode)
                kinds = [(await agent(name, **arguments))["error"]["type"] for name, arguments in calls]
                left = await agent("search_files", pattern="*", target="files")  # to look there needs no approval
                assert left["ok"], left
                answers.append([*kinds, left.get("output", "")])
        return answers

    assert asyncio.run(tried()) == [["denied"] * len(calls) + [""]] * 3
    assert [name for name, _ in no.asked] == [name for name, _ in calls]
    assert not yes.asked


@pytest.mark.slow
@pytest.mark.parametrize("place", ["busybox"], indirect=True)
def test_a_place_without_a_python_has_commands_and_files_and_says_what_it_lacks(place: Callable[[], Backend]) -> None:
    async def seen() -> list[dict[str, Any]]:
        async with agent_in(place()) as agent:
            return [
                await agent("write_file", path="/tmp/new/a", content="one\n"),
                await agent("patch", mode="replace", path="/tmp/new/a", old_string="one", new_string="two"),
                await agent("read_file", path="/tmp/new/a"),
                await agent("terminal", command="cat /tmp/new/a"),
                await agent("read_file", path="/tmp/nothing"),
                await agent("search_files", pattern="two"),
                await agent("execute_code", code="1"),
                await agent("terminal", command="sleep 1", background=True),
            ]

    *works, missing, search, code, background = asyncio.run(seen())
    assert all(each["ok"] for each in works), works
    assert works[2]["output"] == "1|two"
    assert not missing["ok"]
    assert {search["error"]["type"], code["error"]["type"], background["error"]["type"]} == {"unsupported"}
