"""The records of guests with jobs: private, whole, and never trusted."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import ConfigError
from hermes_exec.terminal.guest_records import GuestRecord, read_record, read_records, remove_record, write_record

if TYPE_CHECKING:
    from pathlib import Path

RECORD = GuestRecord(
    id="0123456789abcdef",
    target="ssh://me@login",
    created=1700000000.5,
    folder="/run/user/1000/hx-0123456789abcdef",
    host="login",
    boot="b5a8",
    python="3.6.8",
    uid=1000,
    interpreter="/usr/libexec/platform-python",
)


def test_a_record_is_read_as_it_was_written(state: Path) -> None:
    write_record(RECORD)
    assert read_records() == [RECORD]
    assert read_record(RECORD.id) == RECORD


def test_a_record_is_for_its_owner_alone(state: Path) -> None:
    write_record(RECORD)
    assert (state / f"{RECORD.id}.json").stat().st_mode & 0o777 == 0o600
    assert state.stat().st_mode & 0o077 == 0


def test_the_oldest_record_comes_first(state: Path) -> None:
    younger = replace(RECORD, id="f" * 16, created=RECORD.created + 1)
    older = replace(RECORD, id="e" * 16, created=RECORD.created - 1)
    for record in (younger, RECORD, older):
        write_record(record)
    assert read_records() == [older, RECORD, younger]


def test_a_removed_record_is_gone_and_removing_again_is_safe(state: Path) -> None:
    write_record(RECORD)
    remove_record(RECORD.id)
    remove_record(RECORD.id)
    assert read_records() == []
    assert read_record(RECORD.id) is None


def test_a_folder_that_cannot_be_read_is_one_line_with_a_remedy(state: Path) -> None:
    state.parent.mkdir(parents=True, exist_ok=True)
    state.write_text("a file where a folder is expected")
    for use in (read_records, lambda: write_record(RECORD), lambda: remove_record(RECORD.id)):
        with pytest.raises(ConfigError, match=r"guests.*: (Not a directory|File exists)\. Try: export XDG_STATE_HOME"):
            use()


def test_no_folder_is_no_record(state: Path) -> None:
    assert read_records() == []
    assert not state.exists()


@pytest.mark.parametrize("id", ["../../secret", "", "0123456789ABCDEF", "0123456789abcde", "a/b"])
def test_an_id_that_is_no_id_touches_no_file(state: Path, id: str) -> None:
    secret = state.parent.parent / "secret.json"
    secret.parent.mkdir(parents=True)
    secret.write_text(json.dumps(asdict(RECORD)))
    remove_record(id)
    assert read_record(id) is None
    assert secret.exists()


@pytest.mark.parametrize(
    "changed",
    [
        {"id": "f" * 16},
        {"id": "../../../etc/x"},
        {"id": 5},
        {"target": None},
        {"target": "x" * 5000},
        {"target": "two\nlines"},
        {"created": "now"},
        {"created": True},
        {"folder": "relative"},
        {"folder": "/x\u0000y"},
        {"uid": "0"},
        {"interpreter": ""},
        {"interpreter": "-c"},
        {"more": 1},
    ],
)
def test_a_record_that_makes_no_sense_is_ignored_with_a_warning(
    state: Path, changed: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    state.mkdir(parents=True)
    path = state / f"{RECORD.id}.json"
    path.write_text(json.dumps({**asdict(RECORD), **changed}))
    with caplog.at_level(logging.WARNING):
        assert read_records() == []
    assert str(path) in caplog.text
    assert path.exists()


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 100_000, b" " * (2 << 20)])
def test_a_file_that_is_no_record_is_ignored(state: Path, content: bytes) -> None:
    state.mkdir(parents=True)
    (state / f"{RECORD.id}.json").write_bytes(content)
    write_record(replace(RECORD, id="a" * 16))
    assert [record.id for record in read_records()] == ["a" * 16]


def test_a_fifo_behind_the_name_blocks_nobody(state: Path) -> None:
    state.mkdir(parents=True)
    os.mkfifo(state / f"{RECORD.id}.json")
    assert read_records() == []


@pytest.mark.parametrize("changed", [{"id": "../../evil"}, {"id": "x"}, {"folder": "x"}, {"uid": "0"}])
def test_a_guest_that_lies_about_itself_is_not_recorded(state: Path, changed: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        GuestRecord.from_identity("local", {**RECORD.identity, **changed})


def test_a_half_written_record_is_no_record(state: Path) -> None:
    write_record(RECORD)
    (state / f".{'b' * 16}.json.tmp1.json").write_text("{")
    assert read_records() == [RECORD]
