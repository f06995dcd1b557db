"""What a plain run checks again: what a change may affect, and no more."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from hermes_dev import checks, passed
from hermes_dev.passed import Snapshot, find_affected, read_committed, take_snapshot
from tests.conftest import require_part

if TYPE_CHECKING:
    from pathlib import Path

SOURCES = {
    "hermes_exec/base.py": "SIZE = 1\n",
    "hermes_exec/user.py": "from hermes_exec.base import SIZE\n",
    "agent/far/__init__.py": "",
    "agent/far/away.py": "import hermes_exec.base as base\n",
    "agent/far/near.py": "from hermes_exec import (  # a comment\n    base,\n    user,\n)\n",
    "agent/other.py": "base = 1\n",
}
IMPORTERS = {"hermes_exec/user.py", "agent/far/away.py", "agent/far/near.py"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in {**SOURCES, "pyproject.toml": "", "dev.lock": ""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_change_affects_the_module_and_what_imports_it(checkout: Path) -> None:
    before = take_snapshot(checkout)
    assert find_affected(before, before, checkout) == set()
    (checkout / "hermes_exec/base.py").write_text("SIZE = ''\n")
    assert find_affected(before, take_snapshot(checkout), checkout) == {"hermes_exec/base.py", *IMPORTERS}
    (checkout / "hermes_exec/base.py").unlink()
    assert find_affected(before, take_snapshot(checkout), checkout) == IMPORTERS


def test_without_a_pass_under_these_settings_everything_is_checked(checkout: Path) -> None:
    before = take_snapshot(checkout)
    (checkout / "typings").mkdir()
    (checkout / "typings/b.pyi").write_text("b: int\n")
    now = take_snapshot(checkout)
    assert find_affected(None, now, checkout) == find_affected(before, now, checkout) == SOURCES.keys()


def test_in_a_new_checkout_what_is_committed_counts_as_passed(checkout: Path) -> None:
    require_part("git")

    def git(*words: str) -> None:
        subprocess.run(["git", "-C", checkout, "-c", "user.name=x", "-c", "user.email=x@x", *words], check=True)

    assert read_committed(take_snapshot(checkout), checkout) is None
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "x")
    (checkout / "hermes_exec/base.py").write_text("SIZE = ''\n")
    (checkout / "agent/other.py").unlink()
    (checkout / "agent/new.py").write_text("")
    now = take_snapshot(checkout)
    affected = {"hermes_exec/base.py", "agent/new.py", *IMPORTERS}
    assert find_affected(read_committed(now, checkout), now, checkout) == affected
    (checkout / "pyproject.toml").write_text("[tool]\n")
    assert read_committed(take_snapshot(checkout), checkout) is None


def test_only_a_pass_of_these_sources_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checkout: Path) -> None:
    """A check runs once, again after a change, and again for what it did not pass or what changed while it ran."""
    before, kept, log = take_snapshot(checkout), tmp_path / "kept", tmp_path / "log"
    changed = replace(before, sources={**before.sources, "agent/other.py": "another"})
    snapshots = Mock(return_value=before)
    monkeypatch.setattr(checks, "take_snapshot", snapshots)
    monkeypatch.setattr(checks, "read_committed", Mock(return_value=None))
    monkeypatch.setattr(checks, "find_affected", partial(find_affected, root=checkout))
    monkeypatch.setattr(checks, "read_passed", partial(passed.read_passed, folder=kept))
    monkeypatch.setattr(checks, "write_passed", partial(passed.write_passed, folder=kept))

    def check(snapshot: Snapshot, code: int = 0, *, in_full: bool = False) -> str:
        log.write_text("")
        program = f"import sys; open({str(log)!r}, 'w').write(' '.join(sys.argv[1:]) or 'all'); sys.exit({code})"
        tool = checks.Check("pyright", (sys.executable, "-I", "-c", program))
        assert checks.run(tool, snapshot, in_full=in_full).passed == (code == 0)
        return log.read_text()

    every = " ".join(sorted(SOURCES))
    assert [check(before, 1), check(before), check(before)] == [every, every, ""]
    assert check(before, in_full=True) == "all"
    assert check(changed) == "agent/other.py"  # while it ran, the file was changed back
    snapshots.return_value = changed
    assert [check(changed), check(changed)] == ["agent/other.py", ""]
    (kept / "pyright").write_bytes(b"damage")
    assert check(changed) == every
