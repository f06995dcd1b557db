"""What a plain run checks again: all that a change may affect, and no more."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from hermes_dev import checks, passed
from hermes_dev.passed import Snapshot, find_affected
from tests.rigs.breadth import thorough

ROOT = Path(__file__).parents[2]
SOURCES = {
    "hermes_exec/base.py": "class Base:\n    def size(self) -> int:\n        return 1\n",
    "hermes_exec/user.py": "from hermes_exec.base import Base\n\nSIZE = Base().size()\n",
    "agent/far/__init__.py": "",
    "agent/far/away.py": "import hermes_exec.user as user\n\nDOUBLE = 2 * user.SIZE\n",
    "agent/far/near.py": "from .away import (  # a comment\n    DOUBLE,\n)\n",
    "agent/other.py": "OTHER = 1\n",
}
EVERY = {"hermes_exec/user.py", "agent/far/away.py", "agent/far/near.py"}
BEFORE = Snapshot("settings", SOURCES)


def affected(path: str, text: str | None) -> set[str]:
    sources = {name: each for name, each in (SOURCES | {path: text or ""}).items() if name != path or text is not None}
    return set(find_affected(BEFORE, Snapshot("settings", sources)))


def test_an_unchanged_checkout_affects_nothing() -> None:
    assert find_affected(BEFORE, BEFORE) == frozenset()


@pytest.mark.parametrize("before", [None, replace(BEFORE, settings="others")])
def test_without_a_pass_under_these_settings_everything_is_checked(before: Snapshot | None) -> None:
    assert find_affected(before, BEFORE) == SOURCES.keys()


@pytest.mark.parametrize(
    ("text", "importers"),
    [
        ("class Base:\n    def size(self) -> int:\n        return 22\n", set[str]()),
        ('class Base:\n    """A docstring."""\n\n    def size(self) -> int:\n        return 1\n', set[str]()),
        ("class Base:\n    def size(self) -> int:  # a comment\n        return 1\n", set[str]()),
        ("class Base:\n    def size(self) -> str:\n        return ''\n", EVERY),
        ("class Base:\n    def size(self) -> int:\n        self.seen = True\n        return 1\n", EVERY),
        ("class Base:\n    def size(self) -> int:\n        raise NotImplementedError\n", EVERY),
        ("class Base:\n    def size(self) -> int:\n        yield 1\n", EVERY),
        ("class Base:\n    def size(self):\n        return 1\n", EVERY),
        ("class Base:\n    def size(self) -> int\n", EVERY),
        (None, EVERY),
    ],
)
def test_what_imports_a_module_is_affected_by_what_it_can_see(text: str | None, importers: set[str]) -> None:
    itself = set[str]() if text is None else {"hermes_exec/base.py"}
    assert affected("hermes_exec/base.py", text) == itself | importers


def test_a_new_module_affects_what_imports_its_name() -> None:
    assert affected("agent/hermes_exec.py", "") == {"agent/hermes_exec.py", *EVERY}


def test_what_was_kept_is_read_again_and_damage_is_no_pass(tmp_path: Path) -> None:
    passed.write_passed("pyright", BEFORE, tmp_path)
    assert passed.read_passed("pyright", tmp_path) == BEFORE
    (tmp_path / "pyright").write_bytes(b"damage")
    assert passed.read_passed("pyright", tmp_path) is None


def test_the_sources_of_a_checkout_are_read_with_their_settings(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "dev.lock", "hermes_exec/a.py", "typings/b.pyi"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    before = passed.take_snapshot(tmp_path)
    assert before.sources == {"hermes_exec/a.py": ""}
    (tmp_path / "typings/b.pyi").write_text("b: int\n")
    assert passed.take_snapshot(tmp_path).settings != before.settings


def test_only_a_pass_of_these_sources_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A check runs once, again after a change, and again for what it did not pass or what changed while it ran."""
    log, now, kept = tmp_path / "log", [BEFORE], tmp_path / "kept"
    monkeypatch.setattr(checks, "take_snapshot", lambda: now[-1])
    monkeypatch.setattr(checks, "read_committed", Mock(return_value=None))
    monkeypatch.setattr(checks, "read_passed", partial(passed.read_passed, folder=kept))
    monkeypatch.setattr(checks, "write_passed", partial(passed.write_passed, folder=kept))

    def check(code: int = 0, *, in_full: bool = False, meanwhile: Snapshot | None = None) -> str:
        log.write_text("")
        program = f"import sys; open({str(log)!r}, 'w').write(' '.join(sys.argv[1:]) or 'all'); sys.exit({code})"
        snapshot = now[-1]
        now.append(meanwhile or snapshot)
        tool = checks.Check("pyright", (sys.executable, "-I", "-c", program))
        assert checks.run(tool, snapshot, in_full=in_full).passed == (code == 0)
        return log.read_text()

    changed = replace(BEFORE, sources=SOURCES | {"agent/other.py": "OTHER = 2\n"})
    assert check(1) == check() == " ".join(sorted(SOURCES))
    assert check() == ""
    assert check(in_full=True) == "all"
    now.append(changed)
    assert check(meanwhile=BEFORE) == "agent/other.py"
    now.append(changed)
    assert check() == "agent/other.py"
    assert check() == ""


@thorough
def test_pyright_finds_in_the_affected_files_what_it_finds_in_all(tmp_path: Path) -> None:
    for name, text in SOURCES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    changed = "class Base:\n    def size(self) -> str:\n        return ''\n"
    (tmp_path / "hermes_exec/base.py").write_text(changed)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "extraPaths": ["agent"]}')
    base = [sys.executable, "-I", "-m", "pyright", "--pythonpath", sys.executable]
    found = {
        name: subprocess.run([*base, *paths], check=False, capture_output=True, text=True, cwd=tmp_path).stdout
        for name, paths in {"all": [], "affected": sorted(affected("hermes_exec/base.py", changed))}.items()
    }
    assert "away.py:3" in found["all"]
    assert found["all"] == found["affected"]


def test_in_a_new_checkout_what_is_committed_counts_as_passed(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-C", tmp_path, "-c", "user.name=x", "-c", "user.email=x@x", *words], check=True)

    for name, text in {**SOURCES, "pyproject.toml": "", "dev.lock": ""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert passed.read_committed(passed.take_snapshot(tmp_path), tmp_path) is None
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "x")
    (tmp_path / "hermes_exec/base.py").write_text("class Base:\n    pass\n")
    (tmp_path / "agent/other.py").unlink()
    (tmp_path / "agent/new.py").write_text("")
    committed = passed.read_committed(passed.take_snapshot(tmp_path), tmp_path)
    assert committed is not None
    assert committed.sources == SOURCES
    assert find_affected(committed, passed.take_snapshot(tmp_path)) == {"hermes_exec/base.py", "agent/new.py", *EVERY}
    (tmp_path / "pyproject.toml").write_text("[tool]\n")
    assert passed.read_committed(passed.take_snapshot(tmp_path), tmp_path) is None
