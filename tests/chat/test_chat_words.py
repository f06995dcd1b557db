"""How the words of ``chat`` are read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.cli.start_chat import parse_chat
from hermes_exec_agent.frontends.chat.arguments import ChatArguments
from hermes_exec_agent.models import ask
from hermes_exec_agent.models import say as say_so
from hermes_exec_agent.models.http_api import encode_body
from tests.chat.conftest import say
from tests.rigs.endpoint import KEY, ScriptedEndpoint, Streamed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Cli


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["chat"], {}),
        (["chat", "-q", "hello you", "--json"], {"query": "hello you", "json": True}),
        (["chat", "--query=a=b", "--on", "box", "-m", "other"], {"query": "a=b", "on": "box", "model": "other"}),
        (["chat", "-r", "last", "--approve=deny"], {"resume": "last", "approve": "deny"}),
        (["chat", "--replay", "demo"], {"replay": "demo"}),
        (["chat", "-c", "-q", "more"], {"continue_newest": True, "query": "more"}),
    ],
)
def test_plain_chats_are_understood_without_typer(words: list[str], expected: dict[str, Any]) -> None:
    assert parse_chat(words) == ChatArguments(**expected)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["run"],
        ["chat", "--help"],
        ["chat", "-q"],
        ["chat", "-q=a"],
        ["chat", "-c=a"],
        ["chat", "hello"],
        ["chat", "--budget", "3"],
    ],
)
def test_all_other_chats_are_left_to_typer(words: list[str]) -> None:
    assert parse_chat(words) is None


def test_typer_understands_the_same(cli: Cli, script: Callable[..., str]) -> None:
    words = ["chat", "-q", "hello", "--replay", script(say("Hello.")), "--approve", "deny", "--on", "local"]
    plain, spoken = cli(*words), cli(*words, "--budget", "3")
    assert (plain.returncode, plain.stdout, plain.stderr) == (spoken.returncode, spoken.stdout, spoken.stderr)
    assert plain.returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--approve", "maybe", "-q", "x", "--replay", "demo"], "maybe"),
        (["--replay", "demo", "--model", "main", "-q", "x"], "--replay excludes --model"),
        (["--replay", "no-such-file", "-q", "x"], "no-such-file"),
        (["--resume", "20200101", "-q", "x", "--replay", "demo"], "20200101"),
        (["--resume", "last", "-q", "x", "--replay", "demo"], "there is no conversation yet"),
        (["--continue", "-q", "x", "--replay", "demo"], "there is no conversation yet"),
        (["--continue", "--resume", "last", "-q", "x", "--replay", "demo"], "--continue excludes --resume"),
        (["--guest", "--person", "ada", "-q", "x", "--replay", "demo"], "--guest excludes --person"),
        (["--replay", "demo", "--json"], "--json needs a question"),
        (["--replay", "demo", "--file", "a"], "--file needs a question"),
        (["--file", "no-such-file", "-q", "x", "--replay", "demo"], "no-such-file: No such file"),
        (["--file", sys.executable, "-q", "x", "--replay", "demo"], "not text"),
        (["--file", "-", "-q", "-", "--replay", "demo"], "standard input is the question already"),
        (["--on", "no-such-place", "-q", "x", "--replay", "demo"], "no-such-place"),
    ],
)
def test_mistakes_are_told_in_one_line_before_anything_runs(cli: Cli, words: list[str], said: str) -> None:
    done = cli("chat", *words)
    assert done.returncode == 2
    assert said in done.stderr.decode()
    assert len(done.stderr.splitlines()) == 1
    assert cli.json("conversations", "list", "--all", "--json") == []


def test_nothing_that_is_slow_to_import_is_waited_for_before_the_prompt(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from hermes_exec.cli import fast_args, open_target\n"
        "from hermes_exec_agent.cli import start_chat\n"
        "from hermes_exec_agent.frontends.chat import interactive, screen, start\n"
        "from hermes_exec_agent.models import load_models\n"
        "open_target.plan_target(None)\n"
        "load_models()\n"
        "start.choose_participant(start.read_sections())\n"
        "screen.ScreenDisplay()\n"
        "print(*sys.modules)\n"
    )
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "OPENAI_API_KEY": "none", "DEFAULT_MODEL": "one"}
    argv = [sys.executable, "-I", "-c", code]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, env=env, cwd=tmp_path)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "prompt_toolkit" in loaded
    slow = {"pydantic", "openai", "httpx2", "rich", "typer", "aiohttp", "jsonschema", "hermes_exec_policies"}
    assert sorted(loaded & slow) == []


UNUSED = (
    "hermes_exec.files", "hermes_exec_agent.learning.proposals_edit", "hermes_exec_agent.mcp",
    "hermes_exec_agent.memory.journal", "hermes_exec_agent.memory.session_search", "hermes_exec_agent.memory.tool",
    "hermes_exec_agent.scheduler", "hermes_exec_agent.skills.registry.registry", "hermes_exec_agent.tools.v4a",
    "hermes_exec_policies.gate", "jsonschema", "openai", "prompt_toolkit", "rich", "typer",
)  # fmt: skip
"""What no question needs that runs a command, and what takes long to import."""


def test_a_question_that_runs_a_command_imports_nothing_else_and_its_request_is_small(tmp_path: Path) -> None:
    code = (
        "import os, sys\nos._exit = lambda code: print(code, *sys.modules)\nfrom hermes_exec.cli import main\nmain()\n"
    )
    bodies: list[bytes] = []

    def reply(body: dict[str, Any]) -> Streamed:
        bodies.append(encode_body(body))
        return Streamed(ask(("terminal", {"command": "true"})) if len(bodies) == 1 else say_so("Done."))

    with ScriptedEndpoint([reply], forever=True) as endpoint:
        env = {
            "HOME": str(tmp_path), "PATH": os.environ["PATH"], "LLM_PROVIDER": "custom", "LLM_BASE_URL": endpoint.url,
            "DEFAULT_MODEL": "one", "OPENAI_API_KEY": KEY,
        }  # fmt: skip
        argv = [sys.executable, "-I", "-c", code, "chat", "-q", "go", "--approve", "allow"]
        done = subprocess.run(argv, check=True, capture_output=True, text=True, env=env, cwd=tmp_path)
    answer, status, *loaded = done.stdout.split()
    assert (answer, status, len(bodies)) == ("Done.", "0", 2), done.stderr
    assert [name for name in loaded if f"{name}.".startswith(tuple(f"{each}." for each in UNUSED))] == []
    assert len(bodies[0]) < 10_000
