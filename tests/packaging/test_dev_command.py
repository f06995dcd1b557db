"""``./dev`` itself: finding a Python that works, making its environment once, saying no in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rigs.breadth import thorough

ROOT = Path(__file__).parents[2]
# The environment that this suite runs in, where that is not the default one.
OURS = {"PYTHON": sys.executable} if Path(sys.prefix).name.startswith(".venv-") else {}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what ``./dev`` is made of, without an environment of its own."""
    copy = tmp_path / "a checkout"
    shutil.copytree(ROOT / "tools", copy / "tools")
    for name in ("dev", "pyproject.toml", "dev.lock"):
        shutil.copy(ROOT / name, copy)
    return copy


def dev(checkout: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHON"}
    argv = [str(checkout / "dev"), *words]
    return subprocess.run(argv, check=False, capture_output=True, text=True, env=kept | environment)


def program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_help_names_every_command(checkout: Path) -> None:
    done = dev(checkout, "help")
    assert done.returncode == 0
    for command in ("demo", "test", "lint", "fmt", "bench", "docs", "soak", "shell", "setup", "lock"):
        assert f"  {command}" in done.stdout


def test_a_python_that_the_machine_lacks_is_one_line_and_exit_code_2(checkout: Path) -> None:
    done = dev(checkout, "test", "--python", "3.99")
    assert done.returncode == 2
    assert done.stderr.startswith("dev: this machine has no Python 3.99. Try: ")
    assert done.stderr.count("\n") == 1


@thorough
def test_benchmarks_tell_what_they_measure() -> None:
    done = dev(ROOT, "bench", "--help", **OURS)
    assert done.returncode == 0, done.stderr
    assert "groups" in done.stdout


def test_unknown_command_is_one_line_and_exit_code_2(checkout: Path) -> None:
    done = dev(checkout, "tset")
    assert done.returncode == 2
    assert done.stderr == "dev: there is no command 'tset'. Try: ./dev help\n"


def test_help_leaves_nothing_behind(checkout: Path) -> None:
    before = {path for path in checkout.rglob("*") if "__pycache__" not in path.parts}
    dev(checkout, "help")
    assert {path for path in checkout.rglob("*") if "__pycache__" not in path.parts} == before


def test_a_shim_that_starts_nothing_is_passed_over(checkout: Path, tmp_path: Path) -> None:
    shims = tmp_path / "shims"
    program(shims, "python3.14", "echo 'command not found' >&2; exit 127")
    program(shims, "python3.13", f'exec "{sys.executable}" "$@"')
    done = dev(checkout, "help", PATH=f"{shims}:/usr/bin:/bin")
    assert done.returncode == 0, done.stderr


def test_no_python_is_one_line_that_says_what_to_do(checkout: Path, tmp_path: Path) -> None:
    shims = tmp_path / "shims"
    for name in ("python3", *(f"python3.{minor}" for minor in range(11, 15))):
        program(shims, name, "exit 127")
    only = (checkout / "dev").read_text().replace(" /usr/bin/python3", "")
    (checkout / "dev").write_text(only)
    done = dev(checkout, "help", PATH=f"{shims}:/usr/bin:/bin")
    assert done.returncode == 2
    assert done.stderr.startswith("dev: no Python 3.11 or newer was found. Try: ")
    assert done.stderr.count("\n") == 1


def test_a_chosen_python_that_does_not_work_is_refused(checkout: Path) -> None:
    done = dev(checkout, "help", PYTHON="/nowhere/python3")
    assert done.returncode == 2
    assert done.stderr == "dev: PYTHON=/nowhere/python3 is not a working Python 3.11 or newer\n"


@thorough
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_failed_setup_says_why_and_is_tried_again(checkout: Path, tmp_path: Path) -> None:
    (checkout / "dev.lock").write_text("no-such-tool==1 --hash=sha256:" + "0" * 64 + "\n")
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "UV_OFFLINE": "1"}
    for _ in range(2):
        done = dev(checkout, "setup", **offline)
        assert done.returncode == 1
        assert "could not install" in done.stderr.splitlines()[-1]


def test_exit_codes_pass_through() -> None:
    done = dev(ROOT, "shell", "sh", "-c", "exit 7", **OURS)
    assert done.returncode == 7


def test_shell_finds_the_environments_programs_first() -> None:
    done = dev(ROOT, "shell", "sh", "-c", "command -v ruff", **OURS)
    assert done.stdout.startswith(f"{ROOT}/.venv")
