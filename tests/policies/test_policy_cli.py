"""``hermes-exec policy``: what it prints on a pipe and on a terminal, and its exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_exec_policies.load import list_shipped_policies, load_policy
from hermes_exec_policies.render.forms import render_all
from tests.conftest import require_part

HERMES = [sys.executable, "-I", "-m", "hermes_exec", "policy"]


def policy(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*HERMES, *words], check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize(
    "words",
    [
        ["show", "skill-rum"],
        ["explain", "nothing"],
        ["explain", "open", "--in", "nowhere"],
        ["render", "open", "--form", "selinux"],
        ["diff", "open", "closed"],
        ["check", "/no/such/file.toml"],
    ],
)
def test_bad_input_is_told_in_one_line_with_exit_code_2(words: list[str]) -> None:
    done = policy(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


def test_a_wrong_file_is_told_with_its_key_and_exit_code_2(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('extends = "skill-run"\n[files]\nwrit = ["/a"]\n')
    done = policy("check", str(file))
    assert done.returncode == 2
    assert "unknown key 'writ'; the nearest known one is 'write'" in done.stderr


def test_check_finds_nothing_wrong_with_what_ships() -> None:
    assert policy("check", *list_shipped_policies()).returncode == 0


def test_check_tells_what_cannot_be_enforced_with_exit_code_1() -> None:
    done = policy("check", "skill-validate", "--in", "modal")
    assert done.returncode == 1
    assert "syscalls.filtered" in done.stderr


def test_list_names_every_policy() -> None:
    listed = json.loads(policy("list", "--json").stdout)
    assert {each["name"] for each in listed} >= {*list_shipped_policies()}


def test_show_gives_every_value() -> None:
    shown = json.loads(policy("show", "skill-run", "--json").stdout)
    assert shown["digest"] == load_policy("skill-run").digest
    assert shown["limits"]["processes"] == 64


def test_explain_says_of_open_that_nothing_is_confined() -> None:
    done = policy("explain", "open")
    assert done.returncode == 0
    assert "No confinement" in done.stdout


def test_explain_tells_each_rule_and_what_holds_it() -> None:
    require_part("bwrap", "it makes the sandboxes")
    told = json.loads(policy("explain", "skill-validate", "--json").stdout)
    rules = {each["rule"]: each for each in told["rules"]}
    assert rules["network.isolated"]["strength"] == "required"
    assert rules["limits.time"]["status"] == "enforced"
    assert told["digest"] == load_policy("skill-validate").digest


def test_explain_names_what_nothing_holds() -> None:
    done = policy("explain", "skill-validate", "--in", "modal")
    assert "modal refuses skill-validate here" in done.stderr


def test_diff_shows_the_values_that_differ_and_no_other() -> None:
    found = json.loads(policy("diff", "skill-validate", "skill-run", "--json").stdout)
    assert {each["key"] for each in found} == {
        f"limits.{name}" for name in ("memory", "cpu_time", "time", "disk", "file_size", "output")
    }


def test_render_prints_a_form_and_nothing_else() -> None:
    assert (
        policy("render", "skill-run", "--form", "apparmor").stdout == render_all(load_policy("skill-run"))["apparmor"]
    )


def test_render_writes_every_form_to_a_folder(tmp_path: Path) -> None:
    assert policy("render", "skill-run", "--output", str(tmp_path / "new")).returncode == 0
    assert {file.name: file.read_text() for file in (tmp_path / "new").iterdir()} == render_all(
        load_policy("skill-run")
    )


def test_on_a_terminal_tables_are_drawn_and_fit() -> None:
    main, sub = pty.openpty()
    env = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"}
    with subprocess.Popen([*HERMES, "explain", "skill-run"], stdout=sub, stderr=sub, stdin=sub, env=env) as shown:
        os.close(sub)
        said = b""
        while chunk := _read(main):
            said += chunk
    os.close(main)
    assert shown.returncode == 0
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in said.decode().splitlines()]
    assert lines[1].split()[:2] == ["RULE", "STRENGTH"]
    assert all(len(line) <= 100 for line in lines)
    assert any(line.startswith("files.write") for line in lines)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # its other end was closed
        return b""
