"""``mcp add``, ``list``, ``test`` and ``remove``, the row of ``doctor``, and a chat with another server's tool."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.mcp.conftest import RIG, Rig
from tests.rigs.mcp_server import TOOLS
from tests.rigs.processes import with_mark

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

COMMENT = "# mine\n[limits]\ntimeout_s = 60.0  # a minute\n"


def program(rig: Rig, *more: str) -> list[str]:
    return ["--", sys.executable, "-I", str(RIG), str(rig.folder), *more]


def file(cli: Cli) -> Path:
    return Path(cli.env["XDG_CONFIG_HOME"]) / "hermes_exec/hermes.toml"


def test_a_server_is_added_listed_tested_and_removed(cli: Cli, rig: Rig) -> None:
    path = cli.configure(COMMENT)
    added = cli("mcp", "add", "rig", "--allow", "echo", "--allow", "look", *program(rig))
    assert added.returncode == 0, added.stderr
    assert path.read_text().startswith(COMMENT)
    assert b"rig 1 speaks protocol 2025-11-25" in added.stderr
    (row,) = cli.json("mcp", "list", "--json")
    assert (row["name"], row["allowed"], row["protocol"]) == ("rig", ["echo", "look"], "2025-11-25")
    tested = cli("mcp", "test", "rig", "--json")
    tools = {each["name"]: each for each in json.loads(tested.stdout)["tools"]}
    assert (tested.returncode, tools["echo"]["allowed"], tools["die"]["allowed"]) == (0, True, False)
    assert tools["echo"]["name_for_model"] == "mcp__rig__echo"
    removed = cli("mcp", "remove", "rig")
    assert removed.returncode == 0, removed.stderr
    assert path.read_text() == COMMENT
    assert cli.json("mcp", "list", "--json") == []
    assert not list(Path(cli.env["XDG_STATE_HOME"]).rglob("rig.json"))
    assert not with_mark(str(rig.folder))


def test_a_first_server_makes_the_file(cli: Cli, rig: Rig) -> None:
    assert cli("mcp", "add", "rig", *program(rig)).returncode == 0
    assert file(cli).stat().st_mode & 0o777 == 0o600
    assert "[mcp.rig]" in file(cli).read_text()


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["a__b", "--", "true"], 2, b"cannot be called 'a__b'"),
        (["a"], 2, b"needs either a program or a URL"),
        (["a", "--url", "https://h/", "--", "true"], 2, b"needs either a program or a URL"),
        (["a", "--url", "http://example.org/", "--token-from", "env:T"], 2, b"over https alone"),
        (["a", "--", "no-such-program"], 125, b"no-such-program cannot be started"),
        (["a", "--", "true"], 125, b"it ended with exit code 0"),
        (["a", "--env", "NO_SUCH", "--", "true"], 125, b"NO_SUCH is not set"),
        (["a", "--url", "http://127.0.0.1:1/mcp"], 125, b"nothing listens there"),
    ],
)
def test_a_server_that_is_not_right_is_not_added(cli: Cli, words: list[str], code: int, why: bytes) -> None:
    path = cli.configure(COMMENT)
    done = cli("mcp", "add", *words)
    assert (done.returncode, done.stderr.count(b"\n")) == (code, 1), done.stderr
    assert why in done.stderr
    assert path.read_text() == COMMENT
    assert not list(Path(cli.env["XDG_STATE_HOME"]).rglob("a.json"))


def test_an_unknown_tool_or_a_name_twice_is_refused(cli: Cli, rig: Rig) -> None:
    wrong = cli("mcp", "add", "rig", "--allow", "ecko", *program(rig))
    assert (wrong.returncode, wrong.stderr.count(b"\n")) == (2, 1)
    assert b"the server has no such tool" in wrong.stderr
    assert not file(cli).exists()
    assert cli("mcp", "add", "rig", *program(rig)).returncode == 0
    again = cli("mcp", "add", "rig", *program(rig))
    assert (again.returncode, again.stderr.count(b"\n")) == (2, 1)
    missing = cli("mcp", "test", "rog")
    assert (missing.returncode, missing.stderr) == (2, b"hermes-exec: there is no MCP server 'rog'. Try: rig\n")


def test_a_changed_description_is_shown_and_accepted(cli: Cli, rig: Rig) -> None:
    assert cli("mcp", "add", "rig", "--allow", "*", *program(rig)).returncode == 0
    rig.describe(echo={"description": "Sends it \x1b[2Jto everybody."})
    tested = cli("mcp", "test", "rig")
    assert tested.returncode == 1
    assert b'-  "description": "Returns the text."' in tested.stdout.replace(b"- ", b"-  ").replace(b"-   ", b"-  ")
    assert b"Sends it \\u001b[2Jto everybody." in tested.stdout
    assert b"\x1b" not in tested.stdout
    assert b"hermes-exec mcp test rig --accept" in tested.stderr
    assert cli("mcp", "test", "rig").returncode == 1
    assert cli("mcp", "test", "rig", "--accept").returncode == 0
    assert cli("mcp", "test", "rig").returncode == 0


def test_an_agent_adds_accepts_and_removes_nothing(cli: Cli, rig: Rig) -> None:
    assert cli("mcp", "add", "rig", *program(rig)).returncode == 0
    cli.env["HERMES_EXEC_AGENT"] = "model"
    before = file(cli).read_text()
    for words in (["add", "b", *program(rig)], ["test", "rig", "--accept"], ["remove", "rig"]):
        done = cli("mcp", *words)
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
        assert b"for a person" in done.stderr
    assert file(cli).read_text() == before


def test_the_doctor_has_a_row_for_each_server(cli: Cli, rig: Rig) -> None:
    assert cli("mcp", "add", "rig", "--allow", "echo", *program(rig)).returncode == 0
    with file(cli).open("a") as out:
        out.write('\n[mcp.none]\ncommand = "no-such-program"\n[mcp.new]\ncommand = "true"\n')
        out.write('[mcp.off]\ncommand = "no-such-program"\nenabled = false\n')
        out.write('[mcp.there]\ncommand = "no-such-program"\ntarget = "no-such-profile"\n')
    reports = {report["type"]: report["checks"] for report in json.loads(cli("doctor", "--json").stdout)}
    rows = {row["name"]: row for row in reports["agent"] if row["name"].startswith("mcp ")}
    assert {name: row["status"] for name, row in rows.items()} == {
        "mcp rig": "ok", "mcp none": "missing", "mcp new": "warning", "mcp there": "missing",
    }  # fmt: skip
    assert rows["mcp new"]["remedy"] == "hermes-exec mcp test new"
    assert f"1 of {len(TOOLS)} tools" in rows["mcp rig"]["detail"]


def chat(cli: Cli, *lines: dict[str, Any], approve: str = "allow") -> subprocess.CompletedProcess[bytes]:
    (cli.cwd / "script.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return cli("chat", "-q", "go", "--replay", "script.jsonl", "--approve", approve, "--json")


def test_a_chat_uses_a_tool_of_a_server(cli: Cli, rig: Rig) -> None:
    assert cli("mcp", "add", "rig", "--allow", "echo", *program(rig)).returncode == 0
    call = {"name": "mcp__rig__echo", "arguments": {"text": "from a chat"}}
    done = chat(cli, {"content": "", "tool_calls": [call]}, {"content": "done"})
    assert done.returncode == 0, done.stderr
    assert rig.seen() == ["echo"]
    shown = cli("conversations", "export", "last", "--format", "jsonl").stdout.decode()
    assert "from a chat" in shown
    assert "mcp:rig" in shown
    assert not with_mark(str(rig.folder))


def test_a_denied_chat_calls_nothing(cli: Cli, rig: Rig) -> None:
    assert cli("mcp", "add", "rig", "--allow", "echo", *program(rig)).returncode == 0
    call = {"name": "mcp__rig__echo", "arguments": {"text": "from a chat"}}
    chat(cli, {"content": "", "tool_calls": [call]}, {"content": "done"}, approve="deny")
    assert rig.seen() == []


def test_the_server_of_the_documentation_is_added_and_used_from_an_empty_folder(cli: Cli) -> None:
    page = (Path(__file__).parents[2] / "docs/mcp.md").read_text()
    program_text = page.partition("```python\n")[2].partition("```")[0]
    commands = [line.removeprefix("$ hermes-exec ") for line in page.splitlines() if line.startswith("$ hermes-exec ")]
    add, test = (line for line in commands if " clock" in line)
    (cli.cwd / "clock.py").write_text(program_text)
    added = cli(*shlex.split(add.replace("-- python ", f"-- {sys.executable} ")))
    assert added.returncode == 0, added.stderr
    assert cli(*shlex.split(test)).returncode == 0
    done = chat(cli, {"content": "", "tool_calls": [{"name": "mcp__clock__now", "arguments": {}}]}, {"content": "done"})
    assert done.returncode == 0, done.stderr
    assert "+00:00" in cli("conversations", "export", "last", "--format", "jsonl").stdout.decode()
