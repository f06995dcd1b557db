"""Proposals through the real command line: the page's commands, a person's decisions, and an agent that tries to."""

from __future__ import annotations

import ast
import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec_agent
from hermes_exec_agent.learning.proposals import find_proposal, read_proposals
from hermes_exec_agent.models import Models, ScriptedModel
from hermes_exec_agent.models.scripted import ask
from hermes_exec_agent.models.scripted import say as answer
from hermes_exec_agent.runtime import Options, open_conversation
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.tools.tool import Approvals
from hermes_exec_agent.tools.toolset import create_tools, find_tools
from tests.chat.conftest import chat, do, events, say, script
from tests.cli.conftest import Cli, cli, until
from tests.cli.screen import Screen
from tests.rigs.breadth import thorough
from tests.rigs.pages import run_page
from tests.tools.conftest import Somebody

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_agent.models.protocol import Reply, ToolSpec

__all__ = ["chat", "cli", "script", "until"]

Script = Callable[..., str]
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/learning.md").read_text().partition("\n## Proposals\n")[2].partition("\n## ")[0]
PROGRAM = Path(sys.executable).with_name("hermes-exec")
OURS = "# mine\n[limits]\ntimeout_s = 60.0\n\n[learning]\nproposals = true\n"
NAME = "1-raise-time-limit"


def propose(slug: str = "raise-time-limit", change: str = "limits.timeout_s = 600.0", **more: Any) -> dict[str, Any]:
    """A line of a script: the model proposes a change."""
    arguments = {"name": slug, "change": change, "reason": "a build was stopped", "evidence": [2], **more}
    return {"content": "", "tool_calls": [{"name": "propose_change", "arguments": arguments}]}


@pytest.fixture
def queue(cli: Cli, script: Script) -> Callable[..., Path]:
    """``queue(propose(), …)`` lets a model propose that, and returns the path of the configuration."""

    def run(*lines: dict[str, Any], config: str = OURS) -> Path:
        path = cli.configure(config)
        done = cli("chat", "-q", "go on", "--replay", script(*lines, say("Done.")), "--approve", "allow")
        assert done.returncode == 0, done.stderr
        return path

    return run


def decide(cli: Cli, *words: str, type: str, see: str = "") -> int:
    """Run a command on a terminal, and answer its question."""
    screen = Screen(cli, *words)
    screen.see(see or r"(\[y/N\]|type its name, [^:]*): ")
    screen.type(f"{type}\r")
    try:
        return screen.end()
    finally:
        screen.close()


def state(cli: Cli, name: str = NAME) -> str:
    found: list[dict[str, Any]] = cli.json("proposals", "list", "--all", "--json")
    return next(str(each["state"]) for each in found if each["name"] == name)


def test_every_command_of_the_page_runs_and_shows_its_output(tmp_path: Path) -> None:
    assert run_page(PAGE, tmp_path) == 1


def test_a_person_types_the_name_of_what_loosens_and_can_undo_it(cli: Cli, queue: Callable[..., Path]) -> None:
    hostile = propose("escapes", reason="a\x1b[2J\x1b]0;loop\x07")
    path = queue(propose(), hostile, propose("fewer-replies", "agent.budget = 50", reason="a\nloop"))
    shown = cli("proposals", "show", "1").stdout.decode()
    assert "LOOSENS limits.timeout_s: 60.0 -> 600.0" in shown
    assert ":2 user go on" in shown
    for typed in ("y", "yes", "1", "raise-time-limit", "2-fewer-replies", ""):
        assert decide(cli, "proposals", "accept", "1", type=typed) == 1
        assert (path.read_text(), state(cli)) == (OURS, "open")
    assert decide(cli, "proposals", "accept", "1", type=NAME) == 0
    assert path.read_text() == OURS.replace("60.0", "600.0")
    assert decide(cli, "proposals", "accept", "2", type="n") == 1
    assert decide(cli, "proposals", "accept", "2", type="y") == 0
    assert "budget = 50" in path.read_text()
    assert decide(cli, "proposals", "revert", NAME, type="y") == 0
    assert path.read_text() == OURS + "\n[agent]\nbudget = 50\n"
    assert (state(cli), state(cli, "2-fewer-replies")) == ("reverted", "accepted")
    for words in (("list", "--all"), ("show", "2")):
        assert b"\x1b" not in cli("proposals", *words).stdout


def test_nothing_is_accepted_without_a_terminal_or_in_a_batch(cli: Cli, queue: Callable[..., Path]) -> None:
    path = queue(propose("fewer-replies", "agent.budget = 50"), propose("even-fewer", "agent.budget = 40"))
    for words in (("accept", "1"), ("accept", "1", "2"), ("accept",), ("accept", "--all"), ("accept", "1", "--yes")):
        done = cli("proposals", *words, stdin=b"y\n1-fewer-replies\n")
        assert done.returncode == 2, done
    assert path.read_text() == OURS
    assert cli("proposals", "reject", "1", "--why", "no").returncode == 0
    assert cli("proposals", "accept", "1").returncode == 2
    assert state(cli, "1-fewer-replies") == "rejected"


@pytest.mark.slow
@thorough
@pytest.mark.timeout(400)
def test_a_trial_shows_both_sides_and_changes_nothing(cli: Cli, queue: Callable[..., Path], script: Script) -> None:
    path = queue(propose("no-commands", 'agent.approvals.terminal = "deny"\nlimits.timeout_s = 0.000001'))
    tasks = cli.cwd / "tasks.jsonl"
    lines = (
        {"instruction": "make it", "check": "test -f made"},
        {"instruction": "-", "check": "true", "setup": "false"},
    )
    tasks.write_text("\n\n".join(map(json.dumps, lines)))
    made = script(do("touch made"), say("Done."))
    found = cli("proposals", "try", "1", "--json", "--tasks", str(tasks), "--approve", "allow", "--replay", made)
    assert found.returncode == 0, found.stderr
    rows = {each["check"]: (each["before"], each["after"]) for each in json.loads(found.stdout)["rows"]}
    assert rows["settings"] == ("valid", "valid")
    before, after = rows["a command in the target"]
    assert (before, after == before) == ("exit code 0", False)
    assert all("passed" in each for each in rows["conformance, short"])
    assert rows["gate, short"][0] == rows["gate, short"][1]
    assert rows["labelled tasks"] == (
        "1 succeeded, 0 failed, 1 without evidence", "0 succeeded, 1 failed, 1 without evidence",
    )  # fmt: skip
    assert (path.read_text(), state(cli, "1-no-commands")) == (OURS, "open")
    assert "labelled tasks: 1 succeeded" in cli("proposals", "show", "1").stdout.decode()
    assert sorted(each.name for each in cli.cwd.iterdir()) == ["tasks.jsonl"]
    tasks.write_text('{"instruction": "x"}\n')
    assert b"line 1 is not a task" in cli("proposals", "try", "1", "--tasks", str(tasks)).stderr


def test_a_change_by_hand_is_reported_once_and_acknowledged_at_a_terminal(cli: Cli, queue: Callable[..., Path]) -> None:
    path = queue(propose())
    path.write_text(OURS.replace("proposals = true", "proposals = false"))
    for times in (1, 0):
        done = cli("chat", "-q", "hi", "--replay", "demo", "--json")
        assert done.stderr.decode().count("no person accepted that: hermes.toml") == times
    done = cli("proposals", "changes")
    assert b"+proposals = false" in done.stdout
    assert decide(cli, "proposals", "changes", type="n") == 1
    assert decide(cli, "proposals", "changes", type="y") == 0
    assert b"as a person accepted it" in cli("proposals", "changes").stderr


def test_an_agent_that_may_run_anything_accepts_nothing_through_its_tools(cli: Cli, queue: Callable[..., Path]) -> None:
    """Each line is a way to reach the command, or the function behind it, from a shell of the agent on this machine."""
    program = f"{sys.executable} -I -m hermes_exec proposals"
    code = (
        "import os; from hermes_exec_agent.learning import proposals_apply as a, proposals as p; "
        "from hermes_exec_agent.runtime.events import EventLog; log = EventLog.of_user(); "
        "print(a.apply_plan(log, a.plan_acceptance(p.find_proposal(log, '1'), os.environ), os.environ))"
    )
    typed, without = f"(sleep 1; echo {NAME})", "env -u HERMES_EXEC_AGENT"
    attempts = [
        f"{program} accept 1",
        f"echo {NAME} | {program} accept 1",
        f"{without} {program} accept 1",
        f"{typed} | script -qec '{program} accept 1' /dev/null",
        f"{typed} | {without} script -qec '{program} accept 1' /dev/null",
        f"{typed} | {without} setsid -w script -qec '{program} accept 1' /dev/null",
        f"exec {without} sh -c \"{typed} | script -qec '{program} accept 1' /dev/null\"",
        f"{without} sh leave; sleep 4; cat said",
        f'{sys.executable} -c "{code}"',
        f'{without} {sys.executable} -c "{code}"',
        f"{program} reject 1; {program} revert 1; {program} try 1; {program} changes; {program} accept --yes 1",
        f"{sys.executable} -I -m hermes_exec chat -q hi --replay demo --check '{program} accept 1'",
        f"{without} {sys.executable} -I -m hermes_exec chat -q hi --replay demo --check '{program} accept 1'",
        f"{without} {sys.executable} -I -m hermes_exec run '{program} accept 1'",
    ]
    leave = f"setsid sh -c '{typed} | script -qec \"{program} accept 1\" /dev/null' > said 2>&1 &"
    (cli.cwd / "leave").write_text(leave)
    config = f"{OURS}\n[agent.guardrails]\ntool_failures = [0, 0]\n"
    pty = {"name": "terminal", "arguments": {"command": f"{program} accept 1", "pty": True}}
    python = {
        "name": "execute_code",
        "arguments": {"code": f"import os\nprint(os.system('{program} accept 1'))\n{code}"},
    }
    path = queue(
        propose(), *map(do, attempts), {"content": "", "tool_calls": [pty]}, {"content": "", "tool_calls": [python]},
        config=config,
    )  # fmt: skip
    assert path.read_text() == config
    assert state(cli) == "open"
    results = [each["data"]["content"] for each in events(cli, "result")]
    assert len(results) == len(attempts) + 3
    assert sum("shell of an agent" in each for each in results) >= len(attempts) - 3
    assert cli("chat", "-q", "hi", "--replay", "demo").stderr.count(b"accepted") == 0


def fill(schema: dict[str, Any], text: str) -> Any:
    """A value for a schema, with a text in each place that takes one."""
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return fill(schema["anyOf"][0], text)
    match schema.get("type"):
        case "string":
            return text
        case "integer" | "number":
            return max(1, int(schema.get("minimum", 1)))
        case "boolean":
            return False
        case "array":
            return [fill(schema["items"], text)] if "items" in schema else []
        case _:
            return {key: fill(each, text) for key, each in schema.get("properties", {}).items()}


def test_no_tool_accepts_a_proposal_whatever_it_is_given(
    cli: Cli, queue: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every tool of the registry is called with the command, the name and an event of acceptance as its texts."""
    path = queue(propose())
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, cli.env[name])
    monkeypatch.chdir(cli.cwd)
    texts = (f"hermes-exec proposals accept {NAME}", NAME, '{"action": "accepted", "number": 1}')
    tried: set[str] = set()

    async def talk(log: EventLog, replies: Sequence[Reply]) -> Sequence[ToolSpec]:
        async with open_conversation(
            "local", models=Models(ScriptedModel(replies)), person=Somebody(), log=log, approvals=Approvals("allow"),
            tools=lambda context: create_tools(context, "core"), options=Options(budget=1000),
        ) as conversation:  # fmt: skip
            if replies:
                await conversation.ask("accept your proposal")
            return conversation.specs

    async def attempt(log: EventLog) -> None:
        specs = await talk(log, [])
        tried.update(spec.name for spec in specs)
        calls = [
            ask((spec.name, {**fill(spec.parameters, text), **more}))
            for spec in specs
            for text in texts
            for more in choices(spec.parameters)
        ]
        await talk(log, [*calls, *[answer("Done.")] * 20])

    with EventLog.of_user() as log:
        asyncio.run(attempt(log))
        assert tried >= {each.name for each in find_tools(["core"])} - {
            "cronjob",
            "memory",
            "session_search",
            "user_ask",
        }
        called = {
            event.data["name"] for each in log.conversations() for event in log.events(each.id) if event.kind == "call"
        }
        assert called >= tried
        assert find_proposal(log, "1").state == "open"
        assert {each.state for each in read_proposals(log)} == {"open"}
    assert path.read_text() == OURS


def choices(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Each value of each argument that is a choice."""
    found = [{name: value} for name, each in schema["properties"].items() for value in each.get("enum", ())]
    return found or [{}]


def test_only_the_commands_of_a_person_name_the_functions_that_decide() -> None:
    """No tool, hook, server, worker or slash command of the agent can reach them: their modules do not name them."""
    deciding = {"apply_plan", "acknowledge", "proposals_apply"}
    own = {"cli/proposals.py", "learning/proposals_apply.py"}
    reads = {"learning/proposals_try.py": {"proposals_apply"}, "learning/proposals_watch.py": {"proposals_apply"}}
    folder = Path(hermes_exec_agent.__file__).parent
    for path in folder.rglob("*.py"):
        name = str(path.relative_to(folder))
        tree = ast.parse(path.read_text())
        named = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
        named |= {each.attr for each in ast.walk(tree) if isinstance(each, ast.Attribute)}
        for each in ast.walk(tree):
            if isinstance(each, ast.ImportFrom):
                named |= {alias.name for alias in each.names} | {(each.module or "").rpartition(".")[2]}
        assert name in own or named & deciding <= reads.get(name, set()), name


def test_what_is_accepted_holds_in_the_next_conversation(cli: Cli, script: Script) -> None:
    cli.configure(
        '[agent]\ninstructions = "Answer in one line."\nbudget = 2\n[agent.approvals]\nterminal = "deny"\n'
        '[agent.descriptions]\nterminal = "Runs\\n commands."\n[agent.guardrails]\ntool_failures = [1, 0]\n'
    )
    path = script(do("echo 1"), do("echo 2"), do("echo 3"), say("Done."))
    done = cli("chat", "-q", "go", "--replay", path, "--approve", "allow")
    assert done.returncode == 1, done.stderr
    (started,) = events(cli, "started")
    assert started["data"]["system"].endswith("\n\nAnswer in one line.")
    results = [json.loads(each["data"]["content"].partition("\n")[0]) for each in events(cli, "result")]
    assert {each["error"]["type"] for each in results} == {"denied"}
    assert {each["data"]["reason"] for each in events(cli, "warning")} >= {"budget", "tool_failures"}
    cli.configure('[agent.approvals]\nterminl = "deny"\n')
    done = cli("chat", "-q", "go", "--replay", path)
    assert done.returncode in (2, 125)
    assert b"the nearest one is 'terminal'" in done.stderr
    cli.configure('[agent.approvals]\nterminal = "allow"\n')
    cli("chat", "-q", "go", "--replay", path, "--approve", "deny")
    assert "denied by the settings" in events(cli, "result")[0]["data"]["content"]


def test_an_agent_without_the_setting_has_no_tool_to_propose(cli: Cli, script: Script) -> None:
    cli.configure("")
    done = cli("chat", "-q", "go", "--replay", script(propose(), say("Done.")), "--approve", "allow")
    assert done.returncode == 0, done.stderr
    assert json.loads(events(cli, "result")[0]["data"]["content"])["ok"] is False
    assert cli.json("proposals", "list", "--all", "--json") == []
