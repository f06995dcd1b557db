"""Sync moves what differs and nothing else, and deletes only when asked."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_exec.errors import TransferError, UsageError
from hermes_exec.files import Change
from hermes_exec.files.sync import Direction, split_portions
from hermes_exec.guest.files import tree_scan
from hermes_exec.guest.files.ignore_patterns import Ignore
from tests.rigs.breadth import examples

if TYPE_CHECKING:
    from pathlib import Path

    from tests.files.conftest import Rig, Seen, Told

directions = pytest.mark.parametrize("direction", ["up", "down"])


def sides(rig: Rig, direction: Direction) -> tuple[Path, Path]:
    """The folder that is the source, and the other."""
    return (rig.here, rig.there) if direction == "up" else (rig.there, rig.here)


def contents(rig: Rig, root: Path) -> Seen:
    """The tree without the times of folders, which a deletion may change."""
    return {
        path: (kind, mode, 0 if kind == "folder" else mtime, content)
        for path, (kind, mode, mtime, content) in rig.tree(root).items()
    }


def plant(root: Path) -> None:
    for name in ("a", "d/b", "d/e/c", "f/g"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode() * 100)
    (root / "link").symlink_to("d/b")
    (root / "empty").mkdir()


@directions
def test_a_first_sync_copies_everything(each_rig: Rig, direction: Direction) -> None:
    source, other = sides(each_rig, direction)
    plant(source)
    report = each_rig.run(each_rig.files.sync(each_rig.here, ".", direction=direction))
    assert each_rig.tree(other) == each_rig.tree(source)
    assert (report.copied, report.unchanged, report.deleted, report.bytes) == (5, 0, 0, 1200)


@directions
def test_a_second_sync_copies_nothing(each_rig: Rig, direction: Direction) -> None:
    source, other = sides(each_rig, direction)
    plant(source)
    each_rig.run(each_rig.files.sync(each_rig.here, ".", direction=direction))
    before = {path: os.lstat(other / path).st_ctime_ns for path in each_rig.tree(other)}
    report = each_rig.run(each_rig.files.sync(each_rig.here, ".", direction=direction))
    assert (report.copied, report.unchanged, report.changes) == (0, 5, ())
    assert {path: os.lstat(other / path).st_ctime_ns for path in each_rig.tree(other)} == before


@directions
def test_only_what_changed_is_copied(each_rig: Rig, direction: Direction) -> None:
    source, other = sides(each_rig, direction)
    plant(source)
    each_rig.run(each_rig.files.sync(each_rig.here, ".", direction=direction))
    (source / "d/b").write_bytes(b"longer than it was" * 99)
    (source / "new").write_bytes(b"new")
    (source / "link").unlink()
    (source / "link").symlink_to("a")
    report = each_rig.run(each_rig.files.sync(each_rig.here, ".", direction=direction))
    assert set(report.changes) == {Change(name, "copy") for name in ("d/b", "new", "link")}
    assert (report.copied, report.unchanged, report.bytes) == (3, 3, 18 * 99 + 3)
    assert contents(each_rig, other) == contents(each_rig, source)


@directions
def test_the_same_content_with_another_time_is_only_touched(rig: Rig, direction: Direction) -> None:
    source, other = sides(rig, direction)
    plant(source)
    rig.run(rig.files.sync(rig.here, ".", direction=direction))
    inode = (other / "a").stat().st_ino
    os.utime(source / "a", ns=(5, 1_500_000_000_000_000_005))
    (source / "d/b").chmod(0o600)
    report = rig.run(rig.files.sync(rig.here, ".", direction=direction))
    assert set(report.changes) == {Change("a", "touch"), Change("d/b", "touch")}
    assert (report.copied, report.touched, report.unchanged, report.bytes) == (0, 2, 3, 0)
    assert (other / "a").stat().st_ino == inode
    assert contents(rig, other) == contents(rig, source)


@directions
def test_another_content_of_the_same_size_is_noticed_by_its_hash(rig: Rig, direction: Direction) -> None:
    source, other = sides(rig, direction)
    plant(source)
    rig.run(rig.files.sync(rig.here, ".", direction=direction))
    (source / "a").write_bytes(b"b" * 100)
    os.utime(source / "a", ns=(5, 1_500_000_000_000_000_005))
    report = rig.run(rig.files.sync(rig.here, ".", direction=direction))
    assert report.changes == (Change("a", "copy"),)
    assert (other / "a").read_bytes() == b"b" * 100


@directions
def test_the_mode_of_a_folder_goes_along(rig: Rig, direction: Direction) -> None:
    source, other = sides(rig, direction)
    plant(source)
    rig.run(rig.files.sync(rig.here, ".", direction=direction))
    (source / "d").chmod(0o710)
    report = rig.run(rig.files.sync(rig.here, ".", direction=direction))
    assert stat.S_IMODE((other / "d").stat().st_mode) == 0o710
    assert (report.copied, report.unchanged) == (0, 5)


@directions
def test_nothing_is_deleted_unless_asked(rig: Rig, direction: Direction) -> None:
    source, other = sides(rig, direction)
    plant(source)
    (other / "theirs/deep").mkdir(parents=True)
    (other / "theirs/deep/x").touch()
    report = rig.run(rig.files.sync(rig.here, ".", direction=direction))
    assert report.deleted == 0
    assert (other / "theirs/deep/x").exists()


@directions
def test_delete_removes_what_the_source_has_not(each_rig: Rig, direction: Direction) -> None:
    source, other = sides(each_rig, direction)
    plant(source)
    (other / "theirs/deep").mkdir(parents=True)
    (other / "theirs/deep/x").touch()
    (other / "d").mkdir()
    (other / "d/extra").touch()
    os.mkfifo(other / "pipe")
    (other / "gone").symlink_to("/")
    report = each_rig.run(each_rig.files.sync(each_rig.here, ".", direction=direction, delete=True))
    assert report.deleted == 6
    assert each_rig.tree(other) == each_rig.tree(source)


@directions
def test_delete_does_not_go_through_a_link(rig: Rig, direction: Direction) -> None:
    source, other = sides(rig, direction)
    outside = rig.base / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    (source / "a").touch()
    (other / "link").symlink_to(outside)
    rig.run(rig.files.sync(rig.here, ".", direction=direction, delete=True))
    assert os.listdir(other) == ["a"]
    assert (outside / "precious").exists()


@directions
def test_what_is_ignored_is_neither_copied_nor_deleted(rig: Rig, direction: Direction) -> None:
    source, other = sides(rig, direction)
    plant(source)
    (source / "d/cache").mkdir()
    (source / "d/cache/x").touch()
    (other / "old/cache").mkdir(parents=True)
    (other / "old/cache/y").touch()
    (other / "old/z").touch()
    (other / "a.log").touch()
    ignore = ["cache/", "*.log"]
    report = rig.run(rig.files.sync(rig.here, ".", direction=direction, delete=True, ignore=ignore))
    assert not (other / "d/cache").exists()
    assert (other / "old/cache/y").exists()
    assert (other / "a.log").exists()
    assert not (other / "old/z").exists()
    assert report.deleted == 1


@directions
def test_a_dry_run_changes_nothing_and_tells_the_same(rig: Rig, direction: Direction) -> None:
    source, other = sides(rig, direction)
    plant(source)
    (other / "theirs").touch()
    (other / "a").write_bytes(b"old")
    before = rig.tree(other)
    dry = rig.run(rig.files.sync(rig.here, ".", direction=direction, delete=True, dry_run=True))
    assert rig.tree(other) == before
    assert dry == rig.run(rig.files.sync(rig.here, ".", direction=direction, delete=True))


@directions
@pytest.mark.parametrize("folder_is_new", [True, False])
def test_a_folder_and_a_file_of_one_name_need_delete(rig: Rig, direction: Direction, folder_is_new: bool) -> None:
    source, other = sides(rig, direction)
    with_folder, with_file = (source, other) if folder_is_new else (other, source)
    (with_folder / "x/y").mkdir(parents=True)
    (with_folder / "x/y/z").touch()
    (with_file / "x").touch()
    (source / "more").touch()
    before = rig.tree(other)
    with pytest.raises(UsageError, match="x is a folder on one side"):
        rig.run(rig.files.sync(rig.here, ".", direction=direction))
    assert rig.tree(other) == before
    rig.run(rig.files.sync(rig.here, ".", direction=direction, delete=True))
    assert rig.tree(other) == rig.tree(source)


@directions
def test_a_missing_destination_is_made(rig: Rig, direction: Direction) -> None:
    source, _ = sides(rig, direction)
    plant(source)
    here, there = (rig.here, "new/one") if direction == "up" else (rig.here / "new/one", ".")
    rig.run(rig.files.sync(here, there, direction=direction))
    new = rig.there / "new/one" if direction == "up" else rig.here / "new/one"
    assert contents(rig, new) == contents(rig, source)


@directions
def test_a_missing_destination_of_an_empty_source_is_made_too(rig: Rig, direction: Direction) -> None:
    here, there = (rig.here, "new") if direction == "up" else (rig.here / "new", ".")
    rig.run(rig.files.sync(here, there, direction=direction))
    assert (rig.there / "new" if direction == "up" else rig.here / "new").is_dir()


@directions
def test_a_missing_source_deletes_nothing(rig: Rig, direction: Direction) -> None:
    _, other = sides(rig, direction)
    (other / "a").touch()
    here, there = (rig.base / "nope", ".") if direction == "up" else (rig.here, "nope")
    with pytest.raises(FileNotFoundError):
        rig.run(rig.files.sync(here, there, direction=direction, delete=True))
    assert (other / "a").exists()


@directions
def test_a_source_that_is_a_file_is_refused(rig: Rig, direction: Direction) -> None:
    source, _ = sides(rig, direction)
    (source / "a").touch()
    here, there = (rig.here / "a", ".") if direction == "up" else (rig.here, "a")
    with pytest.raises(NotADirectoryError):
        rig.run(rig.files.sync(here, there, direction=direction))


@directions
def test_special_files_are_told_and_left_alone(rig: Rig, direction: Direction) -> None:
    source, other = sides(rig, direction)
    os.mkfifo(source / "pipe")
    os.mkfifo(other / "pipe")
    (source / "a").touch()
    report = rig.run(rig.files.sync(rig.here, ".", direction=direction, delete=True))
    assert [skipped.path for skipped in report.skipped] == ["pipe"]
    assert (report.copied, report.deleted, report.unchanged) == (1, 0, 0)


@directions
def test_links_out_of_the_tree_are_refused_skipped_or_kept(rig: Rig, direction: Direction) -> None:
    source, other = sides(rig, direction)
    (source / "link").symlink_to("/etc/passwd")
    (source / "a").touch()
    with pytest.raises(TransferError, match="link: a link to /etc/passwd"):
        rig.run(rig.files.sync(rig.here, ".", direction=direction))
    report = rig.run(rig.files.sync(rig.here, ".", direction=direction, links="skip"))
    assert ([skipped.path for skipped in report.skipped], report.copied) == (["link"], 0)
    assert os.listdir(other) == ["a"]
    rig.run(rig.files.sync(rig.here, ".", direction=direction, links="keep"))
    assert os.readlink(other / "link") == "/etc/passwd"


def test_odd_names_keep_their_bytes(each_rig: Rig) -> None:
    top = os.fsencode(each_rig.here)
    for name in (b"\xff\xfe", b"new\nline", b"-rf", b"*"):
        os.mkdir(top + b"/d" + name)
        with open(top + b"/d" + name + b"/" + name, "wb") as file:
            file.write(name)
    os.symlink(b"\xfd/\xfc", top + b"/link")
    each_rig.run(each_rig.files.sync(each_rig.here, ".", links="keep"))
    assert each_rig.tree(each_rig.there) == each_rig.tree(each_rig.here)


def test_progress_counts_what_is_copied(rig: Rig, told: Told) -> None:
    plant(rig.here)
    rig.run(rig.files.sync(rig.here, "."))
    (rig.here / "a").write_bytes(b"12345")
    rig.run(rig.files.sync(rig.here, ".", progress=told))
    assert told.all[-1] == (5, 5, 1, 1)


def test_an_unknown_direction_is_a_usage_error(rig: Rig) -> None:
    sideways: Direction = "sideways"  # type: ignore[assignment]  # as someone without a type checker would
    with pytest.raises(UsageError, match="sideways"):
        rig.run(rig.files.sync(rig.here, ".", direction=sideways))


def test_paths_are_sent_in_portions_of_bounded_size() -> None:
    paths = [b"x" * 1_000_000] * 40
    found = list(split_portions(paths))
    assert [path for portion in found for path in portion] == paths
    assert max(map(len, found)) <= 17


leaf = st.sampled_from(["file 1", "file 2", "link", "file 1 later"])
trees = st.dictionaries(
    st.sampled_from(["a", "b", "d/a", "d/b", "d/e/a", "d/e/f/g", "a-b", "h/i/j", "h/k"]), leaf, max_size=7
)


def grow(root: Path, plan: dict[str, str]) -> None:
    for name, kind in plan.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "link":
            path.symlink_to("a")
            continue
        path.write_text("one" if "1" in kind else "two", "utf-8")
        when = 10**18 + 5 * 10**8 * (("2" in kind) + 2 * ("later" in kind))
        os.utime(path, ns=(when, when))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ours=trees, theirs=trees, up=st.booleans())
def test_any_tree_becomes_the_other(rig: Rig, ours: dict[str, str], theirs: dict[str, str], up: bool) -> None:
    number = len(os.listdir(rig.base))
    here, there = rig.base / f"{number}here", rig.base / f"{number}there"
    for root, plan in ((here, ours), (there, theirs)):
        root.mkdir()
        grow(root, plan)
    direction: Direction = "up" if up else "down"
    source, other = (here, there) if up else (there, here)
    rig.run(rig.files.sync(here, there, direction=direction, delete=True))
    assert contents(rig, other) == contents(rig, source)
    again = rig.run(rig.files.sync(here, there, direction=direction, delete=True))
    assert again.changes == ()


def test_a_scan_is_the_same_bytes_for_the_same_tree(rig: Rig) -> None:
    plant(rig.here)
    rig.run(rig.files.sync(rig.here, "."))

    def scan(root: Path) -> bytes:
        folder = os.open(root, os.O_RDONLY)
        try:
            return b"".join(tree_scan.scan(folder, Ignore([])))
        finally:
            os.close(folder)

    assert scan(rig.here) == scan(rig.there)
