"""The variables and the folder of commands on this machine: of a person, and of programs and agents."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING

import pytest

import hermes_exec
from hermes_exec_backends.local.environment import looks_secret, select_variables

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli

MINE = {
    "VIRTUAL_ENV": "/venv",
    "SLURM_CONF": "/etc/slurm.conf",
    "https_proxy": "http://proxy:3128",
    "HTTP_PROXY": "http://me:word@proxy:3128",
    "EDITOR_OF_MINE": "vi",
    "OPENAI_API_KEY": "sk-1",
    "SSH_AUTH_SOCK": "/run/agent",
    "HERMES_EXEC_AGENT": "a model",
}


def names(output: bytes) -> set[str]:
    return {line.partition("=")[0] for line in output.decode().splitlines()} & {*MINE, "HOME", "PATH"}


def test_a_person_has_all_variables_but_secrets(cli: Cli) -> None:
    assert names(cli("run", "env", env=MINE).stdout) == {*MINE, "HOME", "PATH"} - {"OPENAI_API_KEY", "HTTP_PROXY"}


def test_a_program_has_the_variables_that_find_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in MINE.items():
        monkeypatch.setenv(name, value)

    async def scenario() -> bytes:
        async with hermes_exec.open("local") as terminal:
            return (await terminal.run("env; pwd")).stdout

    output = asyncio.run(scenario())
    assert names(output) == {"VIRTUAL_ENV", "SLURM_CONF", "https_proxy", "HERMES_EXEC_AGENT", "HOME", "PATH"}
    assert output.decode().splitlines()[-1] == os.path.realpath(os.environ["HOME"])


@pytest.mark.parametrize(
    ("inherit", "expected"),
    [
        ('"clean"', {"HERMES_EXEC_AGENT"}),
        ('["EDITOR_*", "OPENAI_*"]', {"HERMES_EXEC_AGENT", "EDITOR_OF_MINE"}),
        ('["OPENAI_API_KEY"]', {"HERMES_EXEC_AGENT", "OPENAI_API_KEY"}),
    ],
)
def test_a_profile_decides(cli: Cli, tmp_path: Path, inherit: str, expected: set[str]) -> None:
    config = tmp_path / "own.toml"
    config.write_text(f'[backends.here]\ntype = "local"\ninherit = {inherit}\n')
    done = cli("--config", str(config), "run", "--on", "here", "env", env=MINE)
    assert names(done.stdout) == {*expected, "HOME", "PATH"}
    shown = json.loads(cli("--config", str(config), "env", "here", "--json", env=MINE).stdout)
    assert {*shown["run"]} & MINE.keys() == {*shown["agent"]} & MINE.keys() == expected


def test_the_names_are_shown_without_values(cli: Cli) -> None:
    done = cli("env", "local", env=MINE)
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.decode().splitlines()}
    assert rows["VIRTUAL_ENV"] == ["inherited", "inherited"]
    assert rows["EDITOR_OF_MINE"] == ["inherited"]
    assert rows["OPENAI_API_KEY"] == ["withheld"]
    assert rows["HTTP_PROXY"] == ["withheld", "withheld"]
    assert b"/venv" not in done.stdout
    assert b"docker:x: its commands get no variables" in cli("env", "docker:x").stderr


@pytest.mark.parametrize("words", [["run", "pwd"], ["run", "--on", "local", "pwd"], ["run", "--json", "pwd"]])
def test_a_command_starts_where_it_is_called(cli: Cli, words: list[str]) -> None:
    assert str(cli.cwd).encode() in cli(*words).stdout


def test_a_folder_is_relative_to_the_one_of_the_call(cli: Cli) -> None:
    (cli.cwd / "below").mkdir()
    assert cli("run", "--cwd", "below", "pwd").stdout.decode() == f"{cli.cwd / 'below'}\n"
    assert cli("shell", stdin=b"pwd\n").stdout.decode() == f"{cli.cwd}\n"


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("AWS_SECRET_ACCESS_KEY", "x", True),
        ("GITHUB_PAT", "x", True),
        ("MYSQL_PWD", "x", True),
        ("npm_token", "x", True),
        ("PGPASSWORD", "x", True),
        ("DATABASE_URL", "postgres://u:p@h/d", True),
        ("DATABASE_URL", "postgres://u@h/d", False),
        ("OLDPWD", "/x", False),
        ("KEYBOARD", "de", False),
        ("TOKENIZERS_PARALLELISM", "false", False),
        ("XAUTHORITY", "/x", False),
        ("COMPASS_HOME", "/x", False),
    ],
)
def test_secrets_are_found_by_words_of_names_and_by_passwords(name: str, value: str, secret: bool) -> None:
    assert looks_secret(name, value) is secret
    assert (name in select_variables({name: value}, "all").withheld) is secret
