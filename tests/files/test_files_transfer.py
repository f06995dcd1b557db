"""Uploads and downloads: what arrives is what was sent, names, times and links included."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import TransferError, UsageError
from hermes_exec.files import TransferReport

if TYPE_CHECKING:
    from tests.files.conftest import Rig, Told

BIG = os.urandom(1 << 20) * 3 + b"end"


def plant(root: Path) -> None:
    """A tree with one of everything that is kept."""
    (root / "deep/er/still").mkdir(parents=True)
    (root / "empty").mkdir(mode=0o711)
    (root / "shut").mkdir()
    (root / "shut/in").write_bytes(b"shut in")
    for number in range(1200):
        (root / f"deep/{number}.txt").write_bytes(b"%d" % number * number)
    (root / "deep/er/big").write_bytes(BIG)
    (root / "deep/er/edge").write_bytes(b"e" * (128 << 10))
    (root / "deep/er/over").write_bytes(b"o" * ((128 << 10) + 1))
    (root / "nothing").touch()
    Path(os.fsdecode(os.fsencode(root) + b"/\xff\xfe name\n")).write_bytes(b"odd")
    (root / "run").write_bytes(b"#!/bin/sh\n")
    (root / "run").chmod(0o755)
    (root / "shared").mkdir()
    (root / "shared/by all").write_bytes(b"shared")
    (root / "shared/by all").chmod(0o666)
    (root / "shared").chmod(0o777)
    (root / "secret").write_bytes(b"s")
    (root / "secret").chmod(0o600)
    (root / "locked").write_bytes(b"l")
    (root / "locked").chmod(0o400)
    (root / "deep/up").symlink_to("../run")
    (root / "deep/dangling").symlink_to("nowhere/at all")
    (root / "deep/er/loop").symlink_to(".")
    for folder, folders, names in os.walk(root, topdown=False):
        for number, name in enumerate(names + folders):
            when = 1_000_000_000_123_456_789 + number
            os.utime(os.path.join(folder, name), ns=(when, when), follow_symlinks=False)
    os.chmod(root / "shut", 0o555)


def test_a_tree_that_is_uploaded_is_the_same_there(each_rig: Rig) -> None:
    plant(each_rig.here)
    report = each_rig.run(each_rig.files.upload(each_rig.here, "tree"))
    assert each_rig.tree(each_rig.there / "tree") == each_rig.tree(each_rig.here)
    sent = [entry for entry in each_rig.tree(each_rig.here).values() if entry[0] != "folder"]
    size = sum(len(content) for kind, _, _, content in sent if kind == "file")
    assert report == TransferReport(len(sent), size)


def test_a_tree_that_is_downloaded_is_the_same_here(each_rig: Rig) -> None:
    plant(each_rig.there)
    report = each_rig.run(each_rig.files.download(".", each_rig.here / "tree"))
    assert each_rig.tree(each_rig.here / "tree") == each_rig.tree(each_rig.there)
    assert report.files == len([entry for entry in each_rig.tree(each_rig.there).values() if entry[0] != "folder"])


def test_a_new_root_gets_the_mode_and_time_of_its_source(rig: Rig) -> None:
    source = rig.here / "source"
    source.mkdir()
    source.chmod(0o750)
    os.utime(source, ns=(7, 1_234_567_890_000_000_007))
    rig.run(rig.files.upload(source, "new"))
    info = (rig.there / "new").stat()
    assert (stat.S_IMODE(info.st_mode), info.st_mtime_ns) == (0o750, 1_234_567_890_000_000_007)


def test_a_root_that_is_there_keeps_its_mode(rig: Rig) -> None:
    (rig.there / "old").mkdir()
    (rig.there / "old").chmod(0o1777)
    (rig.here / "a").touch()
    rig.run(rig.files.upload(rig.here, "old"))
    assert stat.S_IMODE((rig.there / "old").stat().st_mode) == 0o1777


def test_a_tree_is_added_to_what_is_there(rig: Rig) -> None:
    (rig.here / "d").mkdir()
    (rig.here / "d/both").write_bytes(b"new")
    (rig.there / "t/d").mkdir(parents=True)
    (rig.there / "t/d/both").write_bytes(b"old")
    (rig.there / "t/d/theirs").write_bytes(b"kept")
    rig.run(rig.files.upload(rig.here, "t"))
    assert (rig.there / "t/d/both").read_bytes() == b"new"
    assert (rig.there / "t/d/theirs").read_bytes() == b"kept"


def test_a_tree_goes_into_folders_that_may_not_be_written(rig: Rig) -> None:
    plant(rig.here)
    for _ in range(2):
        rig.run(rig.files.upload(rig.here, "tree"))
    assert rig.tree(rig.there / "tree") == rig.tree(rig.here)


@pytest.mark.parametrize("size", [0, 1, 300_000, 9_000_000])
def test_a_file_goes_up_and_comes_down_unchanged(each_rig: Rig, size: int) -> None:
    data = os.urandom(size)
    source = each_rig.here / "a"
    source.write_bytes(data)
    source.chmod(0o640)
    os.utime(source, ns=(1, 1_111_111_111_222_222_222))
    assert each_rig.run(each_rig.files.upload(source, "b")) == TransferReport(1, size)
    assert each_rig.run(each_rig.files.download("b", each_rig.here / "c")) == TransferReport(1, size)
    for path in (each_rig.there / "b", each_rig.here / "c"):
        info = path.stat()
        assert path.read_bytes() == data
        assert (stat.S_IMODE(info.st_mode), info.st_mtime_ns) == (0o640, 1_111_111_111_222_222_222)


def test_transfers_without_verification_give_the_same(rig: Rig) -> None:
    plant(rig.here)
    rig.run(rig.files.upload(rig.here, "tree", verify=False))
    rig.run(rig.files.download("tree", rig.here / "back", verify=False))
    assert rig.tree(rig.here / "back") == rig.tree(rig.there / "tree")


def test_a_file_goes_into_a_folder_named_with_a_slash(rig: Rig) -> None:
    (rig.here / "a").write_bytes(b"1")
    rig.run(rig.files.upload(rig.here / "a", "d/"))
    assert (rig.there / "d/a").read_bytes() == b"1"
    rig.run(rig.files.download("d/a", f"{rig.here}/e/"))
    assert (rig.here / "e/a").read_bytes() == b"1"


def test_a_file_does_not_replace_a_folder(rig: Rig) -> None:
    (rig.here / "a").write_bytes(b"1")
    (rig.there / "d").mkdir()
    with pytest.raises(IsADirectoryError):
        rig.run(rig.files.upload(rig.here / "a", "d"))
    with pytest.raises(IsADirectoryError):
        rig.run(rig.files.download(str(rig.here / "a"), rig.there / "d"))


def test_missing_folders_above_are_an_error_when_asked(rig: Rig) -> None:
    (rig.here / "a").touch()
    (rig.here / "d").mkdir()
    for name in ("a", "d"):
        with pytest.raises(FileNotFoundError):
            rig.run(rig.files.upload(rig.here / name, "x/y", parents=False))
        with pytest.raises(FileNotFoundError):
            rig.run(rig.files.download(str(rig.here / name), rig.here / "x/y", parents=False))


def test_setuid_and_the_like_are_not_carried(rig: Rig) -> None:
    (rig.here / "a").touch()
    (rig.here / "a").chmod(0o6755)
    (rig.here / "d").mkdir()
    (rig.here / "d").chmod(0o3777)
    rig.run(rig.files.upload(rig.here, "t"))
    assert stat.S_IMODE((rig.there / "t/a").stat().st_mode) == 0o755
    assert stat.S_IMODE((rig.there / "t/d").stat().st_mode) == 0o777


def test_a_missing_source_is_a_file_not_found_error(rig: Rig) -> None:
    with pytest.raises(FileNotFoundError, match=r"cannot read .*nope: .* \(on this side\)"):
        rig.run(rig.files.upload(rig.here / "nope", "a"))
    with pytest.raises(FileNotFoundError, match=r"cannot download .*nope"):
        rig.run(rig.files.download("nope", rig.here / "a"))


def test_a_source_that_is_neither_file_nor_folder_is_refused(rig: Rig) -> None:
    os.mkfifo(rig.here / "pipe")
    with pytest.raises(UsageError, match="neither a file nor a folder"):
        rig.run(rig.files.upload(rig.here / "pipe", "a"))
    with pytest.raises(TransferError, match="neither a file nor a folder"):
        rig.run(rig.files.download(str(rig.here / "pipe"), rig.here / "a"))


@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
def test_devices_pipes_and_sockets_are_left_out_and_told(rig: Rig, up: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(rig.here / "pipe")
    monkeypatch.chdir(rig.here)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as door:
        door.bind("door")
    (rig.here / "a").touch()
    move = rig.files.upload if up else rig.files.download
    report = rig.run(move(rig.here, rig.base / "out"))
    assert os.listdir(rig.base / "out") == ["a"]
    assert {skipped.path for skipped in report.skipped} == {"pipe", "door"}


@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "d/../../outside", "d/back/../x"])
def test_a_link_out_of_the_tree_is_refused_and_the_rest_arrives(rig: Rig, up: bool, target: str) -> None:
    (rig.here / "d").mkdir()
    (rig.here / "d/back").symlink_to("..")
    (rig.here / "a").touch()
    (rig.here / "link").symlink_to(target)
    move = rig.files.upload if up else rig.files.download
    with pytest.raises(TransferError, match="link: a link to") as caught:
        rig.run(move(rig.here, rig.base / "out"))
    assert caught.value.state == "everything else was copied"
    assert sorted(os.listdir(rig.base / "out")) == ["a", "d"]
    report = rig.run(move(rig.here, rig.base / "out", links="skip"))
    assert [skipped.path for skipped in report.skipped] == ["link"]
    assert sorted(os.listdir(rig.base / "out")) == ["a", "d"]
    rig.run(move(rig.here, rig.base / "out", links="keep"))
    assert os.readlink(rig.base / "out/link") == target


@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
def test_a_link_in_the_destination_is_never_followed(rig: Rig, up: bool) -> None:
    (rig.here / "d").mkdir()
    (rig.here / "d/a").write_bytes(b"new")
    (rig.here / "f").write_bytes(b"new")
    outside = rig.base / "outside"
    outside.mkdir()
    (outside / "f").write_bytes(b"precious")
    out = rig.base / "out"
    out.mkdir()
    (out / "f").symlink_to(outside / "f")
    (out / "d").symlink_to(outside)
    move = rig.files.upload if up else rig.files.download
    with pytest.raises(OSError, match="out/d") as caught:
        rig.run(move(rig.here, out))
    assert caught.value.errno in {errno.ELOOP, errno.ENOTDIR}
    assert sorted(os.listdir(outside)) == ["f"]
    (out / "d").unlink()
    rig.run(move(rig.here, out))
    assert (outside / "f").read_bytes() == b"precious"
    assert not (out / "f").is_symlink()


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
def test_a_file_that_cannot_be_read_is_an_error_and_the_rest_arrives(rig: Rig, up: bool) -> None:
    (rig.here / "a").touch()
    (rig.here / "b").touch(mode=0)
    move = rig.files.upload if up else rig.files.download
    with pytest.raises(PermissionError, match="b: Permission denied"):
        rig.run(move(rig.here, rig.base / "out"))
    assert os.listdir(rig.base / "out") == ["a"]


def test_ignored_files_stay_behind(each_rig: Rig) -> None:
    for name in ("a.py", "a.pyc", "build/x", "src/build/y", "src/b.py"):
        (each_rig.here / name).parent.mkdir(parents=True, exist_ok=True)
        (each_rig.here / name).touch()
    ignore = ["*.pyc", "build/"]
    each_rig.run(each_rig.files.upload(each_rig.here, "up", ignore=ignore))
    each_rig.run(each_rig.files.download(str(each_rig.here), each_rig.base / "down", ignore=ignore))
    for out in (each_rig.there / "up", each_rig.base / "down"):
        assert set(each_rig.tree(out)) == {"a.py", "src", "src/b.py"}


@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
@pytest.mark.parametrize("name", ["tree", "tree/big"])
def test_progress_rises_to_the_totals(rig: Rig, told: Told, up: bool, name: str) -> None:
    source = rig.here / "tree"
    source.mkdir()
    (source / "big").write_bytes(BIG * 3)
    for number in range(50):
        (source / str(number)).write_bytes(b"12345")
    move = rig.files.upload if up else rig.files.download
    rig.run(move(rig.here / name, rig.base / "out", progress=told))
    files, size = (51, len(BIG) * 3 + 250) if name == "tree" else (1, len(BIG) * 3)
    assert told.all[-1] == (size, size, files, files)
    assert told.all == sorted(told.all)
    assert {(total, count) for _, total, _, count in told.all} == {(size, files)}
    assert len(told.all) > 2


def test_a_failing_progress_callback_ends_the_transfer(rig: Rig) -> None:
    (rig.here / "a").write_bytes(BIG)

    def fail(*numbers: int) -> None:
        raise ZeroDivisionError

    for move in (rig.files.upload, rig.files.download):
        with pytest.raises(ZeroDivisionError):
            rig.run(move(rig.here / "a", rig.base / "out", progress=fail))
        assert not (rig.base / "out").exists()


def test_a_file_that_shrinks_while_it_is_sent_is_an_error(rig: Rig) -> None:
    source = rig.here / "a"
    source.write_bytes(BIG * 4)
    (rig.there / "a").write_bytes(b"old")

    def shrink(*numbers: int) -> None:
        os.truncate(source, 10)

    with pytest.raises(TransferError, match="became shorter") as caught:
        rig.run(rig.files.upload(source, "a", progress=shrink))
    assert caught.value.state == "the destination is as it was"
    assert (rig.there / "a").read_bytes() == b"old"


def test_a_file_that_shrinks_in_a_tree_arrives_as_it_was_read(rig: Rig) -> None:
    (rig.here / "a").write_bytes(b"x" * (20 << 20))

    def shrink(*numbers: int) -> None:
        os.truncate(rig.here / "a", 10)

    rig.run(rig.files.upload(rig.here, "t", progress=shrink))
    assert set((rig.there / "t/a").read_bytes()) <= {ord("x")}
