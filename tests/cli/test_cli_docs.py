"""docs/cli.md says what the commands say of themselves; starting them loads no more than they need.

The help in it is renewed by running this file with ``--write``.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hermes_exec.cli.app import build
from hermes_exec.cli.commands import list_commands
from tests.rigs.breadth import thorough

COMMANDS = list_commands().commands
DOCS = Path(__file__).parents[2] / "docs/cli.md"
BLOCK = re.compile(r"(<!-- help of ?(\w*) -->)\n.*?(<!-- end -->)", re.DOTALL)
PROFILE_COMMANDS = ("init", "list", "show", "check", "trust", "distrust")
GROUPS = (
    "profile", "policy", "skill", "conversations", "memory", "user", "learn", "audit", "curator", "review", "proposals",
    "batch", "rl", "cron", "gateway", "mcp",
)  # fmt: skip
SKILL_COMMANDS = (
    "check", "new", "add", "import", "edit", "search", "trust", "grant", "run", "script", "list", "show",
    "history", "diff", "rollback", "pin", "unpin", "archive", "restore", "release", "verify", "prove", "export",
)  # fmt: skip
POLICY_COMMANDS = ("list", "show", "explain", "diff", "render", "check", "prove")


@functools.cache
def helped(*words: str) -> str:
    """The help of a command, 80 columns wide."""
    argv = [sys.executable, "-I", "-m", "hermes_exec", *words, "--help"]
    env = os.environ | {"COLUMNS": "80", "LANG": "C.UTF-8"}
    return subprocess.run(argv, check=True, capture_output=True, text=True, env=env).stdout


def renewed(text: str) -> str:
    def fill(found: re.Match[str]) -> str:
        shown = helped(*([found[2]] if found[2] else []))
        return f"{found[1]}\n```text\n{shown.rstrip()}\n```\n{found[3]}"

    return BLOCK.sub(fill, text)


@pytest.mark.timeout(600)
@thorough
def test_the_documented_help_is_that_of_the_commands() -> None:
    text = DOCS.read_text()
    assert text == renewed(text), f"renew it: python {Path(__file__).name} --write"


def test_every_command_is_documented() -> None:
    assert {found[2] for found in BLOCK.finditer(DOCS.read_text())} == {"", *COMMANDS}


@functools.cache
def loaded_command(name: str) -> Any:
    group: Any = build([name])
    return group.commands[name]


def find_unknown(words: list[str]) -> str:
    """Return the command or the option that does not exist in a command line; empty if all exist."""
    if words[0] not in COMMANDS:
        return words[0]
    command = loaded_command(words[0])
    for at, word in enumerate(words[1:], 1):
        if word == "--":
            break
        if re.fullmatch(r"--[a-z][a-z-]*(=.*)?", word):
            known: set[str] = {each for option in command.params for each in (*option.opts, *option.secondary_opts)}
            if word.partition("=")[0] not in known | {"--help"}:
                return " ".join(words[: at + 1])
        elif hasattr(command, "commands") and re.fullmatch(r"[a-z][a-z-]*", word):
            if word not in command.commands:
                return " ".join(words[: at + 1])
            command = command.commands[word]
    return ""


def test_no_page_speaks_of_a_command_or_an_option_that_is_not_there() -> None:
    pages = [*DOCS.parent.glob("*.md"), *(DOCS.parents[1] / name for name in ("README.md", "ARCHITECTURE.md"))]
    said = re.compile(r"(?:`|\$ |&& )hermes-exec ([a-z](?:[^`\n|;&<>#]|\\\n)+)")
    spoken = {(page.name, line.replace("\\\n", " ")) for page in pages for line in said.findall(page.read_text())}
    assert len(spoken) > 250
    found = ((page, find_unknown(line.split())) for page, line in spoken)
    assert [(page, unknown) for page, unknown in found if unknown] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_and_the_list_of_commands_say_the_same(name: str) -> None:
    listed = re.search(rf"^  {name} +(.+)$", helped(), re.MULTILINE)
    assert listed is not None
    assert listed[1] == COMMANDS[name].summary


@pytest.mark.parametrize("name", PROFILE_COMMANDS)
def test_every_command_below_profile_has_help(name: str) -> None:
    assert helped("profile", name).startswith(f"Usage: hermes-exec profile {name}")


@pytest.mark.parametrize("name", POLICY_COMMANDS)
def test_every_command_below_policy_gives_json(name: str) -> None:
    assert "--json" in helped("policy", name)


@pytest.mark.parametrize("name", SKILL_COMMANDS)
def test_every_command_below_skill_has_help(name: str) -> None:
    assert helped("skill", name).startswith(f"Usage: hermes-exec skill {name}")


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in {*GROUPS, "help"}])
def test_json_is_everywhere(name: str) -> None:
    assert "--json" in helped(name)


def loaded(*words: str) -> set[str]:
    """The packages that a command line has loaded by its end."""
    code = (
        "import os, sys\n"
        "from hermes_exec import cli\n"
        "tell = lambda _: print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)\n"
        "os._exit = tell\n"
        "cli.main()\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code, *words], check=False, capture_output=True, text=True)
    return set(done.stderr.split())


def test_help_loads_neither_rich_nor_pydantic_nor_asyncio() -> None:
    assert loaded("--help") >= {"typer"}
    assert not loaded("--help") & {"rich", "pydantic", "asyncio"}


def test_a_plain_run_loads_neither_typer_nor_rich_nor_pydantic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    packages = loaded("run", "--", "true")
    assert "asyncio" in packages
    assert not packages & {"typer", "rich", "pydantic"}


if __name__ == "__main__" and "--write" in sys.argv:
    DOCS.write_text(renewed(DOCS.read_text()))
