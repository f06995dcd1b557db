"""``hermes-exec skill``: what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.skills.registry.home import RegistryHome, default_home
from tests.rigs.breadth import thorough
from tests.rigs.skill_makers import registered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Require

Skill = Any
"""Runs ``hermes-exec skill …`` in folders of one test."""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }


@pytest.fixture
def known(environ: dict[str, str], tmp_path: Path) -> RegistryHome:
    """A registry with two versions of a skill."""
    found = default_home(environ)
    registered(found, tmp_path / "1")
    registered(found, tmp_path / "2", files={"scripts/main.py": "def run(a: int, b: int) -> int:\n    return b + a\n"})
    return found


@pytest.fixture
def skill(environ: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-I", "-m", "hermes_exec", "skill", *words]
        return subprocess.run(
            argv, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL, env={**environ, **more}
        )

    return run


def told(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "words",
    [
        ["show", "add-number"],
        ["show", "add-numbers", "--version", "9"],
        ["history", "nothing"],
        ["diff", "add-numbers", "9"],
        ["rollback", "add-numbers", "9"],
        ["pin", "add-numbers", "--version", "9"],
        ["archive", "nothing"],
        ["release", "add-numbers"],
        ["run", "nothing"],
        ["run", "add-numbers", "--arguments", "nonsense"],
        ["run", "add-numbers", "--arguments", "[1]"],
        ["run", "add-numbers", "--arguments", '{"a": "x"}'],
        ["add", "/no/such/folder"],
        ["add", ".", "--shell", "local"],
        ["import", "/no/such/file"],
    ],
)
def test_bad_input_is_told_in_one_line_with_exit_code_2(skill: Skill, known: RegistryHome, words: list[str]) -> None:
    done = skill(*words)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.stderr


def test_what_there_is_is_listed_and_shown(skill: Skill, known: RegistryHome) -> None:
    (line,) = told(skill("list", "--json"))
    assert (line["name"], line["version"], line["level"], line["state"]) == ("add-numbers", 2, "person", "ready")
    shown = told(skill("show", "add-numbers", "--version", "1", "--json"))
    assert (shown["number"], shown["evidence"]["evidence"]["killed"], shown["runs"]["runs"]) == (1, 3, 0)
    assert "held" not in skill("show", "add-numbers").stderr
    assert [each["what"] for each in told(skill("history", "add-numbers", "--json"))] == ["registered"] * 2
    assert told(skill("diff", "add-numbers", "1", "--json"))["changed"] == ["scripts/main.py"]
    assert "+    return b + a" in skill("diff", "add-numbers", "1").stdout.splitlines()


@thorough
def test_a_life(skill: Skill, known: RegistryHome) -> None:
    for words in (["rollback"], ["pin"], ["unpin"], ["archive"]):
        assert skill(words[0], "add-numbers").returncode == 0
    assert told(skill("list", "--json")) == []
    assert skill("restore", "add-numbers").returncode == 0
    (line,) = told(skill("list", "--json"))
    assert (line["version"], line["state"]) == (1, "ready")
    kinds = [each["what"] for each in told(skill("history", "add-numbers", "--json"))]
    assert kinds == ["registered", "registered", "chosen", "pinned", "unpinned", "archived", "restored"]


def test_what_was_changed_is_told_kept_back_and_refused(skill: Skill, known: RegistryHome) -> None:
    assert told(skill("verify", "--json")) == {"verified": 2, "wrong": []}
    (tree, *_) = [path for path in known.content.iterdir() if "b + a" in (path / "scripts/main.py").read_text()]
    (tree / "scripts/main.py").write_text("evil = 1\n")
    done = skill("verify")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    done = skill("run", "add-numbers", "--arguments", '{"a": 1, "b": 2}')
    assert (done.returncode, done.stdout) == (125, "")
    assert "in quarantine: changed" in done.stderr


def test_the_shell_of_an_agent_registers_nothing(skill: Skill, known: RegistryHome, tmp_path: Path) -> None:
    folder = str(tmp_path / "1/source")
    done = skill("add", folder, HERMES_EXEC_AGENT="some-model")
    assert (done.returncode, "without a sandbox" in done.stderr) == (125, True)
    assert skill("add", folder, "--insist", HERMES_EXEC_AGENT="some-model").returncode == 2
    assert skill("add", folder, "--agent", "m", "--shell", "docker:x", HERMES_EXEC_AGENT="m").returncode == 125


@pytest.mark.timeout(300)
def test_a_result_goes_to_the_output_and_what_is_printed_to_the_errors(
    skill: Skill, known: RegistryHome, tmp_path: Path, require: Require
) -> None:
    require("bwrap", "makes the sandbox")
    text = "def run(a: int, b: int) -> float:\n    print('printed')\n    return a / b\n"
    registered(known, tmp_path / "3", files={"scripts/main.py": text})
    done = skill("run", "add-numbers", "--arguments", '{"a": 1, "b": 2}')
    assert (done.returncode, done.stdout, done.stderr) == (0, "0.5\n", "printed\n")
    done = skill("run", "add_numbers", "--arguments", '{"a": 1, "b": 0}')
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == "hermes-exec: add-numbers 3: ZeroDivisionError: division by zero"
    whole = skill("run", "add-numbers", "--arguments", '{"a": 1, "b": 0}', "--json")
    assert (whole.returncode, json.loads(whole.stdout)["counts"]["in_a_row"]) == (1, 2)


def test_only_what_changed_is_proven_anew(skill: Skill, known: RegistryHome) -> None:
    done = skill("prove", "--changed")
    assert (done.returncode, done.stdout) == (0, "")
    assert "no skill has to be checked again" in done.stderr


def test_garbage_is_told_of(skill: Skill, known: RegistryHome) -> None:
    (known.content / ("0" * 64)).mkdir()
    assert told(skill("gc", "--json")) == {"environments": [], "content": ["0" * 64]}
