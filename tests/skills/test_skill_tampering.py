"""Whatever is changed in a registry by somebody else is noticed."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import Refused
from hermes_exec_agent.skills.registry import content
from hermes_exec_agent.skills.registry.registry import Registry
from tests.rigs.breadth import IN_FULL, WHOLE
from tests.rigs.skill_makers import home_in, registered

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec_agent.skills.registry.home import RegistryHome
    from hermes_exec_agent.skills.registry.record import Version

MAIN = "scripts/main.py"
_STEP = 61 if IN_FULL else 199 if WHOLE else 499


@pytest.fixture
def version(home: RegistryHome, tmp_path: Path) -> Version:
    return registered(home, tmp_path)


def is_noticed(home: RegistryHome, version: Version, into: Path) -> bool:
    """Whether the tree is refused, be it looked at or taken out."""
    seen = bool(content.find_differences(home.content / version.digest, version.files))
    try:
        content.copy_verified(home.content / version.digest, version.files, into)
    except content.ContentChanged:
        assert not into.exists()
        return seen
    shutil.rmtree(into)
    assert not seen
    return False


def test_what_nobody_touched_is_taken_out_as_it_was(home: RegistryHome, version: Version, tmp_path: Path) -> None:
    content.copy_verified(home.content / version.digest, version.files, tmp_path / "out")
    for listed in version.files:
        taken = tmp_path / "out" / listed.path
        assert taken.read_bytes() == (home.content / version.digest / listed.path).read_bytes()
        assert taken.stat().st_mode & 0o7777 == listed.mode
    assert not is_noticed(home, version, tmp_path / "again")


def test_every_byte_of_every_file_counts(home: RegistryHome, version: Version, tmp_path: Path) -> None:
    missed: list[tuple[str, int]] = []
    for listed in version.files:
        file = home.content / version.digest / listed.path
        good = file.read_bytes()
        for place in range(len(good)):
            file.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
            if not content.find_differences(home.content / version.digest, version.files):
                missed.append((listed.path, place))
        file.write_bytes(good)
    assert not missed


def replaced(path: Path, make: Callable[[Path], object]) -> None:
    """Put something else where ``path`` is."""
    path.rename(next(above for above in path.parents if above.name == "registry") / "elsewhere")
    make(path)


def linked(path: Path) -> None:
    """Put a link where ``path`` is, to a place elsewhere that is alike."""
    away = next(above for above in path.parents if above.name == "registry") / f"elsewhere-{path.name}"
    path.rename(away)
    path.symlink_to(away)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a byte more": lambda tree: (tree / MAIN).write_bytes((tree / MAIN).read_bytes() + b"\n"),
    "a byte less": lambda tree: os.truncate(tree / MAIN, (tree / MAIN).stat().st_size - 1),
    "an empty file": lambda tree: os.truncate(tree / MAIN, 0),
    "executable": lambda tree: (tree / MAIN).chmod(0o755),
    "writable by all": lambda tree: (tree / MAIN).chmod(0o666),
    "set-user-ID": lambda tree: (tree / MAIN).chmod(0o4644),
    "unreadable": lambda tree: (tree / MAIN).chmod(0),
    "a folder's mode": lambda tree: (tree / "scripts").chmod(0o777),
    "its own mode": lambda tree: tree.chmod(0o777),
    "a file more": lambda tree: (tree / "scripts/json.py").write_text(""),
    "a hidden file more": lambda tree: (tree / ".x").write_text(""),
    "a folder more": lambda tree: (tree / "scripts/__pycache__").mkdir(),
    "a file that is no name": lambda tree: open(os.fsencode(tree) + b"/\xff", "w").close(),
    "a file less": lambda tree: (tree / MAIN).unlink(),
    "a folder less": lambda tree: shutil.rmtree(tree / "tests"),
    "everything gone": shutil.rmtree,
    "another name": lambda tree: (tree / MAIN).rename(tree / "scripts/other.py"),
    "a link to the same bytes": lambda tree: linked(tree / MAIN),
    "a link to a folder": lambda tree: linked(tree / "scripts"),
    "a link to all of it": linked,
    "a pipe": lambda tree: replaced(tree / MAIN, os.mkfifo),
    "a folder of that name": lambda tree: replaced(tree / MAIN, os.mkdir),
    "a file instead of a folder": lambda tree: replaced(tree / "tests", Path.touch),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_a_tree_is_noticed(home: RegistryHome, version: Version, tmp_path: Path, change: str) -> None:
    CHANGES[change](home.content / version.digest)
    assert is_noticed(home, version, tmp_path / "out")
    with pytest.raises(Refused):
        Registry(home).verify(version)


def test_registering_the_same_bytes_again_mends_what_was_changed(
    home: RegistryHome, version: Version, tmp_path: Path
) -> None:
    (home.content / version.digest / MAIN).write_text("evil = 1\n")
    again = registered(home, tmp_path / "again")
    assert again.digest == version.digest
    Registry(home).verify(again)


TRIGGERS = ("nothing_changes", "nothing_goes", "no_body_changes", "no_body_goes")


def change_log(home: RegistryHome, *statements: str) -> None:
    base = sqlite3.connect(home.log)
    base.executescript("".join(f"DROP TRIGGER {name};" for name in TRIGGERS) + ";".join(statements))
    base.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET line = replace(line, 'person', 'nobody') WHERE seq = 2",
        "UPDATE events SET line = replace(line, 'unprotected', 'protected')||' ' WHERE seq = 2",
        "UPDATE events SET seq = 9 WHERE seq = 3",
        "UPDATE events SET seq = seq + 1 WHERE seq = 3",
        "DELETE FROM events WHERE seq = 3",
        "DELETE FROM events WHERE seq = 2",
        "DELETE FROM events",
        "INSERT INTO events SELECT 4, line, signature FROM events WHERE seq = 3",
        "INSERT INTO events SELECT 4, replace(line, '[3,', '[4,'), signature FROM events WHERE seq = 3",
        "UPDATE events SET line = 'nonsense' WHERE seq = 3",
        "UPDATE events SET line = CAST(x'ff' AS TEXT) WHERE seq = 3",
        "DROP TABLE events",
        "PRAGMA journal_mode = WAL",
        "PRAGMA application_id = 1",
    ],
)
def test_every_change_of_the_log_is_noticed(
    home: RegistryHome, version: Version, tmp_path: Path, statement: str
) -> None:
    registered(home, tmp_path / "2", files={"README.md": "2"})
    change_log(home, statement)
    with pytest.raises(Refused):
        Registry(home).skills()


@pytest.mark.parametrize(
    "statement",
    [
        'UPDATE bodies SET body = replace(body, \'"function":"run"\', \'"function":"evil"\')',
        "UPDATE bodies SET body = body || ' '",
        "DELETE FROM bodies",
        "UPDATE bodies SET body = CAST(x'ff' AS TEXT)",
        "UPDATE events SET signature = zeroblob(64)",
        "UPDATE events SET signature = x''",
        "UPDATE events SET signature = (SELECT signature FROM events WHERE seq = 1)",
    ],
)
def test_every_change_of_a_record_is_noticed_when_it_is_used(
    home: RegistryHome, version: Version, statement: str
) -> None:
    change_log(home, statement)
    with pytest.raises(Refused):
        Registry(home).version("add-numbers")


@pytest.mark.timeout(600)
def test_no_byte_of_the_database_changes_what_is_told(home: RegistryHome, version: Version) -> None:
    good = home.log.read_bytes()
    registry = Registry(home)
    told = registry.version("add-numbers")
    wrong: list[int] = []
    for place in range(0, len(good), _STEP):
        home.log.write_bytes(good[:place] + bytes([good[place] ^ 0x41]) + good[place + 1 :])
        try:
            if registry.version("add-numbers") != told:
                wrong.append(place)
        except Refused:
            pass
    assert not wrong


def test_an_older_log_is_noticed(home: RegistryHome, version: Version, tmp_path: Path) -> None:
    older = home.log.read_bytes()
    registered(home, tmp_path / "2", files={"README.md": "2"})
    home.log.write_bytes(older)
    with pytest.raises(Refused, match="older than it was"):
        Registry(home).skills()


def test_an_older_head_of_another_log_is_noticed(home: RegistryHome, version: Version) -> None:
    home.log.unlink()
    with pytest.raises(Refused, match="gone"):
        Registry(home).skills()


def test_a_log_that_was_begun_anew_is_noticed(home: RegistryHome, version: Version, tmp_path: Path) -> None:
    (head,) = home.keys.glob("head-*")
    kept = head.read_bytes()
    head.unlink()
    home.log.unlink()
    registered(home, tmp_path / "2")
    head.write_bytes(kept)
    with pytest.raises(Refused, match="another one|were changed"):
        Registry(home).skills()


def test_a_head_that_is_gone_or_changed_is_noticed(home: RegistryHome, version: Version, tmp_path: Path) -> None:
    (head,) = home.keys.glob("head-*")
    good = head.read_bytes()
    for bad in (good.replace(b'"counter": 2', b'"counter": 1'), good[:-20], b"{}", b"[]", b"null", b"\xff", good * 2):
        head.write_bytes(bad)
        with pytest.raises(Refused, match="head"):
            Registry(home).skills()
    head.unlink()
    with pytest.raises(Refused, match="head is gone"):
        Registry(home).skills()


def test_the_key_of_somebody_else_proves_nothing(home: RegistryHome, version: Version, tmp_path: Path) -> None:
    other = home_in(tmp_path / "other")
    registered(other, tmp_path / "there")
    shutil.copy(other.keys / "key.pem", home.keys / "key.pem")
    with pytest.raises(Refused, match="head"):
        Registry(home).skills()


def test_without_its_key_a_registry_is_not_read(home: RegistryHome, version: Version) -> None:
    (home.keys / "key.pem").unlink()
    with pytest.raises(Refused, match="key of this installation"):
        Registry(home)
