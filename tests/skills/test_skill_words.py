"""The plainest ``skill run`` is understood without typer, and in the same way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.cli.skill_run import SkillRunArguments, parse_skill_run
from hermes_exec_agent.skills.registry.home import default_home
from tests.rigs.breadth import thorough
from tests.rigs.skill_makers import registered

if TYPE_CHECKING:
    from tests.conftest import Require


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["x"], {}),
        (["x", "--arguments", '{"a": "="}'], {"arguments": '{"a": "="}'}),
        (['--arguments={"a": 1}', "x"], {"arguments": '{"a": 1}'}),
        (["x", "-a", "-", "--json"], {"arguments": "-", "whole": True}),
        (["-o", "docker:x", "x", "-f", "out", "-V", "3"], {"on": "docker:x", "files": Path("out"), "number": 3}),
        (["x", "--self-tested", "--json"], {"self_tested": True, "whole": True}),
    ],
)
def test_plain_words_are_understood(words: list[str], expected: dict[str, Any]) -> None:
    assert parse_skill_run(["skill", "run", *words]) == SkillRunArguments("x", **expected)


@pytest.mark.parametrize(
    "words",
    [
        ["skill"],
        ["skill", "list"],
        ["skill", "run"],
        ["skill", "run", "x", "y"],
        ["skill", "run", "x", "--help"],
        ["skill", "run", "x", "--"],
        ["skill", "run", "x", "--arguments"],
        ["skill", "run", "x", "--arguments", "--json"],
        ["skill", "run", "x", "--json=1"],
        ["skill", "run", "x", "-V", "three"],
        ["skill", "run", "x", "-V3"],
    ],
)
def test_all_others_are_left_to_typer(words: list[str]) -> None:
    assert parse_skill_run(words) is None


@pytest.mark.timeout(300)
@thorough
def test_typer_understands_the_same(require: Require, tmp_path: Path) -> None:
    require("bwrap", "makes the sandbox")
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    registered(default_home(environ), tmp_path / "1")

    def told(*words: str) -> tuple[int, str, str]:
        argv = [sys.executable, "-I", "-m", "hermes_exec", *words]
        done = subprocess.run(
            argv, check=False, capture_output=True, text=True, input='{"a": 1, "b": 2}', env=environ, cwd=tmp_path
        )
        return done.returncode, done.stdout, done.stderr

    for words in (
        ["add-numbers", "--arguments", "-"],
        ["add-numbers", "--arguments", '{"a": 1}'],
        ["add-number", "--arguments", "{}"],
        ["add-numbers", "--arguments", "nonsense", "--version", "1"],
    ):
        plain = told("skill", "run", *words)
        assert plain == told("--no-audit", "skill", "run", *words)
    assert told("skill", "run", "add-numbers", "--arguments", "-") == (0, "3\n", "")
