"""The read-only copies of registered scripts: they follow no link, replace nothing of a person's, and fail nothing."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import pytest

from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_agent.skills.registry.script_copies import modules_folder
from hermes_exec_policies.load import load_policy
from tests.rigs.skill_makers import FILES, PERSON, home_in, report_of, tree_in

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    return tmp_path / "app/skills"


def register(registry: Registry, folder: Path, script: str = FILES["scripts/main.py"]) -> None:
    tree = tree_in(folder, {"scripts/main.py": script})
    registry.register(tree, report_of(tree), load_policy("skill-run"), author=PERSON, kernel=platform.release())


def test_the_copy_is_read_only_and_of_the_current_version(tmp_path: Path, modules: Path) -> None:
    registry = Registry(home_in(tmp_path), modules=modules)
    register(registry, tmp_path / "1")
    copy = modules / "add_numbers.py"
    assert copy.stat().st_mode & 0o777 == 0o444
    assert copy.read_text().startswith("# add-numbers 1, SHA-256 ")
    assert copy.read_text().endswith(FILES["scripts/main.py"])
    register(registry, tmp_path / "2", FILES["scripts/main.py"].replace("a + b", "b + a"))
    assert copy.read_text().startswith("# add-numbers 2, SHA-256 ")
    assert "return b + a" in copy.read_text()
    registry.pin("add-numbers", 2)
    register(registry, tmp_path / "3", FILES["scripts/main.py"].replace("a + b", "(a + b)"))
    assert copy.read_text().startswith("# add-numbers 2, SHA-256 ")
    assert [each.name for each in modules.iterdir()] == ["add_numbers.py"]


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_what_somebody_else_put_there_stays(tmp_path: Path, modules: Path, kind: str) -> None:
    modules.mkdir(parents=True)
    there = modules / "add_numbers.py"
    (tmp_path / "other").write_text("mine")
    if kind == "file":
        there.write_text("mine")
    elif kind == "link":
        there.symlink_to(tmp_path / "other")
    else:
        there.mkdir()
    registry = Registry(home_in(tmp_path), modules=modules)
    register(registry, tmp_path / "1")
    assert list(registry.skills()) == ["add-numbers"]
    assert (tmp_path / "other").read_text() == "mine"
    assert kind == "folder" or there.read_text() == "mine"
    assert [each.name for each in modules.iterdir()] == ["add_numbers.py"]


def test_a_folder_that_is_a_link_is_not_followed(tmp_path: Path, modules: Path) -> None:
    modules.parent.mkdir()
    (tmp_path / "elsewhere").mkdir()
    modules.symlink_to(tmp_path / "elsewhere")
    registry = Registry(home_in(tmp_path), modules=modules)
    register(registry, tmp_path / "1")
    assert list(registry.skills()) == ["add-numbers"]
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_it_is_beside_the_folder_that_persists() -> None:
    assert str(modules_folder({"PERSISTENT_DIR": "/app/data"})) == "/app/skills"
    assert modules_folder({}) is None
