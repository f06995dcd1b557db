"""Whole files on this very machine: lent by descriptor and copied by the kernel, or else sent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import TransferError
from hermes_exec.guest.files import kernel_copy
from tests.files.conftest import planted

if TYPE_CHECKING:
    from pathlib import Path

    from tests.files.conftest import Rig, Told

SIZE = kernel_copy.WORTH + 12345


@pytest.fixture
def data() -> bytes:
    return os.urandom(SIZE)


def no_loan(fd: int) -> list[int]:
    """One that nobody can take: no file has that inode."""
    return [os.getpid(), fd, 1]


def not_copied(*_: object) -> bool:
    return False


def test_an_upload_arrives_whole_without_its_bytes_being_sent(near_rig: Rig, data: bytes, carried: list[int]) -> None:
    planted(near_rig.here / "file", data)
    near_rig.run(near_rig.files.upload(near_rig.here / "file", near_rig.there / "file"))
    assert sum(carried) < 1000
    assert near_rig.tree(near_rig.there) == near_rig.tree(near_rig.here)


def test_a_download_arrives_whole_without_its_bytes_being_sent(near_rig: Rig, data: bytes, carried: list[int]) -> None:
    planted(near_rig.there / "file", data)
    near_rig.run(near_rig.files.download(near_rig.there / "file", near_rig.here / "file"))
    assert sum(carried) < 1000
    assert near_rig.tree(near_rig.there) == near_rig.tree(near_rig.here)


@pytest.mark.parametrize("up", [True, False])
def test_a_file_that_cannot_be_borrowed_is_sent(
    near_rig: Rig, data: bytes, up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_copy, "handoff_fields", no_loan)
    if up:
        planted(near_rig.here / "file", data)
        near_rig.run(near_rig.files.upload(near_rig.here / "file", near_rig.there / "file"))
    else:
        planted(near_rig.there / "file", data)
        monkeypatch.setattr(kernel_copy, "copy_from", not_copied)
        near_rig.run(near_rig.files.download(near_rig.there / "file", near_rig.here / "file"))
    assert near_rig.tree(near_rig.there) == near_rig.tree(near_rig.here)


@pytest.mark.parametrize("up", [True, False])
def test_whoever_wants_to_see_the_progress_sees_it_grow(near_rig: Rig, data: bytes, told: Told, up: bool) -> None:
    here, there = near_rig.here / "file", near_rig.there / "file"
    if up:
        planted(here, data)
        near_rig.run(near_rig.files.upload(here, there, progress=told))
    else:
        planted(there, data)
        near_rig.run(near_rig.files.download(there, here, progress=told))
    assert len({done for done, *_ in told.all}) > 2
    assert told.all[-1][:2] == (SIZE, SIZE)


def test_an_upload_into_a_folder_that_takes_no_file_changes_nothing(near_rig: Rig, data: bytes) -> None:
    planted(near_rig.here / "file", data)
    (near_rig.there / "file").mkdir()
    with pytest.raises(TransferError):
        near_rig.run(near_rig.files.upload(near_rig.here / "file", near_rig.there / "file"))
    assert list(near_rig.there.rglob("*")) == [near_rig.there / "file"]


def test_what_is_lent_is_that_file_or_none(tmp_path: Path) -> None:
    other = planted(tmp_path / "other", b"other" * 100)
    with (tmp_path / "new").open("wb+") as new, other.open("rb") as lent:
        pid, fd, inode = kernel_copy.handoff_fields(lent.fileno())
        assert not kernel_copy.copy_from([pid, fd, inode + 1], new.fileno(), 500)
        assert not kernel_copy.copy_from([pid, fd, inode], new.fileno(), 501)  # it is shorter
        assert not kernel_copy.copy_from([pid, 1 << 40, inode], new.fileno(), 500)
        assert os.fstat(new.fileno()).st_size == 0
        assert kernel_copy.copy_from([pid, fd, inode], new.fileno(), 500)
    assert (tmp_path / "new").read_bytes() == b"other" * 100
