"""What failed once runs again, alone: how a run is judged then, on a small project of its own."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from hermes_dev import unsteady

ROOT = Path(__file__).parents[2]
CONFTEST = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.rigs import results

def pytest_configure(config):
    results.record(config)
"""
ONCE = """
import os, pathlib, pytest

def once(name):
    marker = pathlib.Path(__file__).with_name(name)
    if not marker.exists():
        marker.touch()
        return True
    return False
"""
STEADY = "def test_fine(): pass\n"
UNSTEADY = "def test_odd(): assert not once('odd'), 'the first time'\n"
BROKEN = "def test_broken(): assert 1 == 2\n"


@dataclass(frozen=True)
class Project:
    """Tests of its own, and a list."""

    folder: Path

    @property
    def list_file(self) -> Path:
        return self.folder / "unsteady.md"

    def run(self, *tests: str, workers: bool = False) -> int:
        (self.folder / "test_it.py").write_text(ONCE + "".join(tests))
        return unsteady.run_suite(self._argv, ["-n", "2"] if workers else [], list_file=self.list_file)

    def _argv(self, *arguments: str) -> list[str]:
        return ["env", f"--chdir={self.folder}", sys.executable, "-m", "pytest", *arguments]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return Project(tmp_path)


@pytest.mark.parametrize("workers", [False, True])
def test_what_passes_alone_is_listed_with_its_first_error(
    project: Project, capfd: pytest.CaptureFixture[str], workers: bool
) -> None:
    assert project.run(STEADY, UNSTEADY, workers=workers) == 0
    assert "- `test_it.py::test_odd`: AssertionError: the first time" in project.list_file.read_text()
    out, err = capfd.readouterr()
    assert "unsteady: test_it.py::test_odd: AssertionError: the first time" in err
    closing = out.strip().splitlines()[-1]
    assert closing.startswith("=")
    assert " 2 passed, 1 unsteady in " in closing


def test_what_fails_alone_too_fails_the_run(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    assert project.run(STEADY, BROKEN, UNSTEADY) == 1
    assert " 1 failed, 2 passed, 1 unsteady in " in capfd.readouterr().out.strip().splitlines()[-1]
    assert "test_broken" not in project.list_file.read_text()


def test_a_setup_that_fails_counts_as_a_failure(project: Project) -> None:
    fixture = "@pytest.fixture\ndef part():\n    assert not once('part')\ndef test_it(part): pass\n"
    assert project.run(fixture) == 0
    assert "test_it.py::test_it" in project.list_file.read_text()
    assert project.run("@pytest.fixture\ndef part(): assert 0\ndef test_it(part): pass\n") == 1


def test_none_may_be_unsteady_twice_in_a_row(project: Project) -> None:
    assert project.run(STEADY, UNSTEADY) == 0
    (project.folder / "odd").unlink()
    assert project.run(STEADY, UNSTEADY) == 1
    assert project.run(STEADY, UNSTEADY) == 0  # passes the first time
    assert "test_odd" not in project.list_file.read_text()


def test_more_than_five_are_not_run_again(project: Project) -> None:
    many = [f"def test_{number}(): assert not once('m{number}')\n" for number in range(unsteady.MOST + 1)]
    assert project.run(*many) == 1
    assert not project.list_file.exists()


def test_a_failure_that_only_the_others_bring_about_is_unsteady(project: Project) -> None:
    leaks = "left = []\ndef test_leaks(): left.append(1)\ndef test_met(): assert not left\n"
    assert project.run(leaks) == 0
    assert "test_it.py::test_met" in project.list_file.read_text()


@pytest.mark.parametrize(
    ("tests", "workers"),
    [
        ("import no_such_module\n", False),  # collection
        ("def test_crash(): once('c') and os._exit(9)\n", False),
        ("def test_crash(): once('c') and os._exit(9)\ndef test_other(): pass\n", True),
        ("def test_stop():\n    if once('c'): raise KeyboardInterrupt\n", False),
    ],
)
def test_a_session_that_is_not_whole_fails_and_nothing_runs_again(project: Project, tests: str, workers: bool) -> None:
    assert project.run(STEADY, tests, workers=workers) != 0
    assert not project.list_file.exists()


def test_a_list_that_cannot_be_written_changes_nothing_else(
    project: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    project.list_file.mkdir()
    assert unsteady.read_list(project.folder / "none.md") == frozenset()
    unsteady.write_list(project.list_file, {"test_it.py::test_odd": "why"})
    assert "is not written" in capfd.readouterr().err
