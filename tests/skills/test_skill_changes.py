"""Whatever a registered tree is, and whatever somebody changes of it or of what was signed, is noticed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_exec.errors import Refused
from hermes_exec_agent.skills.registry import content
from hermes_exec_agent.skills.registry.home import RegistryHome
from hermes_exec_agent.skills.registry.log import head_file
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_policies.gate.tree import copy_tree
from tests.rigs.breadth import IN_FULL, WHOLE
from tests.rigs.skill_makers import registered

if TYPE_CHECKING:
    from hermes_exec_policies.gate.tree import Tree

_NAMES = st.text("abcdefgh", min_size=1, max_size=3)
_PATHS = st.lists(_NAMES, min_size=1, max_size=3).map("/".join)
_TREES = st.dictionaries(_PATHS, st.tuples(st.binary(max_size=40), st.booleans()), min_size=1, max_size=6).filter(
    lambda files: not any(one != other and other.startswith(one + "/") for one in files for other in files)
)
_KINDS = (
    "byte",
    "longer",
    "shorter",
    "mode",
    "folder mode",
    "more",
    "folder more",
    "gone",
    "renamed",
    "link",
    "swapped",
)


def tree_of(files: dict[str, tuple[bytes, bool]], folder: Path) -> Tree:
    for path, (data, executable) in files.items():
        (folder / "source" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "source" / path).write_bytes(data)
        (folder / "source" / path).chmod(0o755 if executable else 0o644)
    return copy_tree(folder / "source", folder / "copy")


def changed(kind: str, root: Path, tree: Tree, data: st.DataObject) -> bool:
    """Change something of that kind; whether there was anything to change."""
    listed = data.draw(st.sampled_from(tree.files))
    file = root / listed.path
    good = file.read_bytes()
    match kind:
        case "byte" if good:
            place = data.draw(st.integers(0, len(good) - 1))
            other = data.draw(st.integers(1, 255))
            file.write_bytes(good[:place] + bytes([good[place] ^ other]) + good[place + 1 :])
        case "longer":
            file.write_bytes(good + data.draw(st.binary(min_size=1, max_size=3)))
        case "shorter" if good:
            os.truncate(file, data.draw(st.integers(0, len(good) - 1)))
        case "mode":
            file.chmod(data.draw(st.integers(0, 0o7777).filter(lambda mode: mode != listed.mode)))
        case "folder-mode":
            file.parent.chmod(data.draw(st.integers(0, 0o7777).filter(lambda mode: mode != 0o755)) | 0o700)
            return file.parent.stat().st_mode & 0o7777 != 0o755
        case "more":
            name = data.draw(_NAMES)
            if os.path.lexists(file.parent / name):
                return False
            (file.parent / name).write_bytes(b"")
        case "folder-more":
            (file.parent / "__pycache__").mkdir()
        case "gone":
            file.unlink()
        case "renamed":
            file.rename(file.with_name(file.name + "z"))
        case "link":
            away = root.parent / "away"
            file.rename(away)
            file.symlink_to(away)
        case "swapped":
            others = [each for each in tree.files if each.sha256 != listed.sha256 and each.mode == listed.mode]
            if not others:
                return False
            (root / others[0].path).rename(root.parent / "away")
            file.rename(root / others[0].path)
            (root.parent / "away").rename(file)
        case _:
            return False
    return True


@pytest.mark.parametrize("kind", _KINDS)
@settings(
    max_examples=60 if IN_FULL else 20 if WHOLE else 8, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(files=_TREES, data=st.data())
def test_no_change_of_any_tree_goes_unnoticed(kind: str, files: dict[str, tuple[bytes, bool]], data: Any) -> None:
    with tempfile.TemporaryDirectory() as made:
        tree = tree_of(files, Path(made))
        assert not content.find_differences(tree.root, tree.files)
        if not changed(kind, tree.root, tree, data):
            return
        assert content.find_differences(tree.root, tree.files)
        with pytest.raises(content.ContentChanged):
            content.copy_verified(tree.root, tree.files, Path(made) / "out")
        assert not (Path(made) / "out").exists()


@pytest.fixture
def told(home: RegistryHome, tmp_path: Path) -> list[tuple[int, str, bytes, str]]:
    """The events of three versions, a pin and a quarantine."""
    for number in range(3):
        registered(home, tmp_path / str(number), files={"README.md": str(number)})
    Registry(home).pin("add-numbers", 2)
    Registry(home).quarantine("add-numbers", 1, "changed")
    with closing(sqlite3.connect(home.log)) as base:
        return base.execute("SELECT seq, line, signature, body FROM events JOIN bodies USING (seq)").fetchall()


def used(home: RegistryHome) -> None:
    """Use every version, as a run does before anything of it is started."""
    registry = Registry(home)
    for number in registry.skill("add-numbers").versions:
        registry.version("add-numbers", number)


def changed_log(home: RegistryHome, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(home.log)) as base, base:
        for name in ("nothing_changes", "nothing_goes", "no_body_changes", "no_body_goes"):
            base.execute(f"DROP TRIGGER {name}")
        base.execute(statement, values)


def test_no_signature_stands_for_another_event(home: RegistryHome, told: list[tuple[int, str, bytes, str]]) -> None:
    kept = home.log.read_bytes()
    missed: list[tuple[int, int]] = []
    registrations = [row for row in told if '"registered"' in row[1]]
    for seq, _, own, _ in registrations:
        for other, _, signature, _ in told:
            if signature == own:
                continue
            changed_log(home, "UPDATE events SET signature = ? WHERE seq = ?", signature, seq)
            try:
                used(home)
                missed.append((seq, other))
            except Refused:
                pass
            home.log.write_bytes(kept)
    used(home)
    assert not missed


@pytest.mark.parametrize("signature", [b"", b"\0" * 64, b"x" * 64, b"x" * 63])
def test_a_signature_that_is_none_is_refused(
    home: RegistryHome, told: list[tuple[int, str, bytes, str]], signature: bytes
) -> None:
    changed_log(home, "UPDATE events SET signature = ? WHERE line LIKE '%registered%'", signature)
    with pytest.raises(Refused):
        used(home)


def test_no_body_stands_for_another_event(home: RegistryHome, told: list[tuple[int, str, bytes, str]]) -> None:
    kept = home.log.read_bytes()
    for seq, line, _, body in told:
        for _, _, _, other in told:
            if other != body and '"registered"' in line:
                changed_log(home, "UPDATE bodies SET body = ? WHERE seq = ?", other, seq)
                with pytest.raises(Refused):
                    used(home)
                home.log.write_bytes(kept)


def test_the_log_and_head_of_another_registry_are_refused(home: RegistryHome, tmp_path: Path) -> None:
    other = RegistryHome(tmp_path / "another", home.keys)  # of the same installation, with the same key
    registered(home, tmp_path / "1")
    registered(other, tmp_path / "2")
    mine, theirs = (head_file(each.keys, each.folder) for each in (home, other))
    shutil.copy(other.log, home.log)
    shutil.copy(theirs, mine)
    with pytest.raises(Refused):
        Registry(home).skills()
