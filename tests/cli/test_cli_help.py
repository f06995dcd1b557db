"""Help that can be scanned: panels, whole summaries, examples that work, and suggestions for a wrong command."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from typer.core import TyperGroup

from hermes_exec.cli.app import build
from hermes_exec.cli.commands import OTHERS, PANELS, find_examples, list_commands
from hermes_exec.cli.examples import EXAMPLES
from hermes_exec.cli.suggestions import suggest_commands

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

COMMANDS = list_commands().commands


def walk(command: Any, path: list[str]) -> Iterator[tuple[str, Any]]:
    yield " ".join(path), command
    if isinstance(command, TyperGroup):
        for name, below in command.commands.items():
            yield from walk(below, [*path, name])


def every_command() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in COMMANDS:
        root: Any = build([name])
        found.update(walk(root.commands[name], [name]))
    return found


def parse(example: str) -> Any:
    """The context of an example: its options and arguments are accepted. Nothing is executed."""
    words = shlex.split(example)
    command: Any = build(words)
    context: Any = command.make_context("hermes-exec", words)
    while isinstance(context.command, TyperGroup):
        rest = [*context._protected_args, *context.args]
        name, command, rest = context.command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
    return context


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Options before the command set variables of this process."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]


EVERY = every_command()


def test_every_command_of_this_project_stands_in_a_panel() -> None:
    assert {command.panel for command in COMMANDS.values()} == set(PANELS) - {OTHERS}


def test_the_panels_hold_every_command(cli: Cli) -> None:
    text = cli("--help").stdout.decode()
    heads = re.findall(r"^(\w[\w ]*):$", text, re.MULTILINE)
    assert heads == ["Options", *PANELS, "Examples"]
    for name in COMMANDS:
        assert re.search(rf"^  {name} +\S", text, re.MULTILINE), name


@pytest.mark.parametrize("path", EVERY)
def test_a_command_has_examples_that_it_accepts(path: str) -> None:
    examples = find_examples(path)
    takes_nothing = {parameter.name for parameter in EVERY[path].params} <= {"help"}
    single = takes_nothing or all(p.required or p.name == "help" for p in EVERY[path].params)
    assert len(examples) >= (1 if single else 2), path
    for example in examples:
        assert parse(example).command_path.startswith(f"hermes-exec {path}"), example


def test_the_examples_of_the_program_are_accepted() -> None:
    assert [parse(example).info_name for example in EXAMPLES[""]] == ["run", "run", "help"]


def test_help_shows_the_examples_with_the_name_of_the_program(cli: Cli) -> None:
    lines = cli("cp", "--help").stdout.decode().splitlines()
    at = lines.index("Examples:")
    assert lines[at + 1 : at + 3] == [f"  hermes-exec {example}" for example in find_examples("cp")]


@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_no_summary_is_cut(cli: Cli, columns: str) -> None:
    for words in ((), ("skill",), ("batch",), ("memory",)):
        text = cli(*words, "--help", env={"COLUMNS": columns}).stdout.decode()
        joined = " ".join(text.partition("Examples:")[0].split())
        assert "..." not in joined.replace("[ARGS]...", "").replace("]...", ""), words
        for path, command in EVERY.items():
            if path.split()[:-1] == list(words) and (words or " " not in path):
                assert " ".join(command.get_short_help_str(10_000).split()) in joined


def test_help_prints_the_help_of_a_command(cli: Cli) -> None:
    assert cli("help").stdout == cli("--help").stdout
    assert cli("help", "kill").stdout == cli("kill", "--help").stdout
    assert cli("help", "profile", "list").stdout == cli("profile", "list", "--help").stdout


def test_help_of_an_unknown_command_suggests_one(cli: Cli) -> None:
    done = cli("help", "profile", "ls")
    assert done.returncode == 2
    assert done.stderr == (b"hermes-exec: No such command 'ls'. Did you mean 'list'? Try: hermes-exec profile --help\n")


def test_version_prints_the_version(cli: Cli) -> None:
    assert cli("version").stdout == cli("--version").stdout
    told = cli.json("version", "--json")
    assert told["version"] in cli("version").stdout.decode()
    assert os.path.isdir(told["folder"])


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("exec", "run"),
        ("ps", "jobs"),
        ("ls", "jobs"),
        ("ssh", "shell"),
        ("scp", "cp"),
        ("rsync", "sync"),
        ("stop", "kill"),
        ("tail", "logs"),
        ("history", "log"),
        ("tunnel", "forward"),
        ("settings", "config"),
        ("targets", "profile"),
        ("diagnose", "doctor"),
        ("ask", "chat"),
        ("sessions", "conversations"),
        ("remember", "memory"),
        ("evaluate", "batch"),
        ("permissions", "policy"),
        ("LOGS", "logs"),
        ("confg", "config"),
    ],
)
def test_a_wrong_command_suggests_one_by_meaning(word: str, expected: str) -> None:
    assert expected in suggest_commands(word, list(COMMANDS), root=True)


@pytest.mark.parametrize(
    ("group", "word", "expected"),
    [
        ("profile", "ls", "list"),
        ("skill", "install", "add"),
        ("skill", "rm", "archive"),
        ("memory", "delete", "forget"),
    ],
)
def test_a_wrong_command_of_a_group_suggests_one_by_meaning(group: str, word: str, expected: str) -> None:
    names = [path.split()[1] for path in EVERY if path.startswith(f"{group} ")]
    assert expected in suggest_commands(word, names, root=False)


def test_no_synonym_is_the_name_of_a_command() -> None:
    assert {word for each in COMMANDS.values() for word in each.synonyms} & set(COMMANDS) == set()


def test_a_word_without_a_meaning_suggests_nothing(cli: Cli) -> None:
    assert suggest_commands("xyzzy", list(COMMANDS), root=True) == []
    assert b"Did you mean" not in cli("xyzzy").stderr
