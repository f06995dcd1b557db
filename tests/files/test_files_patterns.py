"""Ignore patterns mean what they mean to git, which is asked itself where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hermes_exec.files.sync import TreeScan
from hermes_exec.guest.files import tree_scan
from hermes_exec.guest.files.ignore_patterns import Ignore
from tests.rigs.breadth import examples

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("a", "b", "ab", "a.py", "foo", ".x", "a b", "[", "b]", "-", "é", "a\\", "!a", "#a", "A")
FOLDERS = ("", "a/", "foo/", "foo/a/", "foo/b/", "foo/a/b/", "b/a/foo/", "a.py.d/", "[/")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository with a tree of odd names."""
    if shutil.which("git") is None:
        pytest.skip("no git to ask. Try: apt-get install git")
    root = tmp_path_factory.mktemp("repository")
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    for folder in FOLDERS:
        for name in NAMES:
            if not (root / folder / name).exists():
                (root / folder / name).touch()
    git = {"GIT_CONFIG_NOSYSTEM": "1", "HOME": str(root), "PATH": os.environ["PATH"]}
    subprocess.run(["git", "init", "-q", root], check=True, env=git)
    return root


def kept_by_git(root: Path, lines: list[bytes]) -> set[bytes]:
    (root / ".git/info/exclude").write_bytes(b"\n".join(lines) + b"\n")
    argv = ["git", "-C", str(root), "ls-files", "--others", "--exclude-from=.git/info/exclude", "-z"]
    out = subprocess.run(argv, check=True, capture_output=True, env={"PATH": os.environ["PATH"], "HOME": str(root)})
    return set(out.stdout.split(b"\0")[:-1])


def kept_by_us(root: Path, lines: list[bytes]) -> set[bytes]:
    folder = os.open(root, os.O_RDONLY)
    try:
        data = b"".join(tree_scan.scan(folder, Ignore([*lines, b"/.git"])))
    finally:
        os.close(folder)
    found: set[bytes] = set()
    for path, block in TreeScan.parse(data).folders.items():
        for name, entry in block.entries().items():
            if entry.kind != 0o040000:
                found.add(path + b"/" + name if path else name)
    return found


pattern = st.text(st.sampled_from("ab*?/[]!^.-\\fo xé#A:"), min_size=1, max_size=9).map(os.fsencode)


@settings(max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(pattern, min_size=1, max_size=3))
def test_any_patterns_leave_out_what_git_ignores(repository: Path, lines: list[bytes]) -> None:
    assert kept_by_us(repository, lines) == kept_by_git(repository, lines)


@pytest.mark.parametrize(
    ("lines", "path", "is_folder", "ignored"),
    [
        (["*.pyc"], "a/b.pyc", False, True),
        (["*.pyc", "!keep.pyc"], "a/keep.pyc", False, False),
        (["build/"], "build", False, False),
        (["build/"], "a/build", True, True),
        (["/build"], "a/build", True, False),
        (["doc/*.txt"], "doc/a/b.txt", False, False),
        (["doc/**/*.txt"], "doc/b.txt", False, True),
        (["logs/**"], "logs", True, False),
        (["logs/**"], "logs/a/b", False, True),
        (["[[:digit:]]?"], "7x", False, True),
        (["[[:digit:]]?"], "xx", False, False),
        (["[[:nonsense:]]"], "n", False, False),
        (["a\\ ", "#b", "", "  "], "a ", False, True),
        (["a   "], "a", False, True),
        (["#b"], "#b", False, False),
        (["\\#b"], "#b", False, True),
        (["caf?"], "caf\udce9", False, True),
    ],
)
def test_one_pattern_means(lines: list[str], path: str, is_folder: bool, ignored: bool) -> None:
    assert Ignore(map(os.fsencode, lines)).ignores(os.fsencode(path), is_folder) is ignored


@given(pattern, st.text(st.sampled_from("ab*é[."), max_size=40).map(os.fsencode))
def test_no_pattern_takes_long_or_fails(line: bytes, name: bytes) -> None:
    assume(name)
    assert Ignore([line * 20]).ignores(name, is_folder=False) in {True, False}
