"""Messages reach a file once, whatever was cut off before; other channels register themselves."""

from __future__ import annotations

import asyncio
import fcntl
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.scheduler import delivery as module
from hermes_exec_agent.scheduler.delivery import Channel, check_addresses, format_record, send_delivery
from hermes_exec_agent.scheduler.outbox import Delivery

if TYPE_CHECKING:
    from pathlib import Path


def letter(path: Path, body: str = "line 1\nline 2", attempts: int = 1) -> Delivery:
    return Delivery(1, 1, f"file:{path}", "job: completed, 2026-11-02T08:00+01:00", body, "0123456789abcdef", attempts)


def send(delivery: Delivery) -> None:
    asyncio.run(send_delivery(delivery))


def test_messages_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.write_text("mine\n")
    send(letter(path))
    assert path.read_text() == (
        "mine\n--- job: completed, 2026-11-02T08:00+01:00 [0123456789abcdef]\nline 1\nline 2\n\n"
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(0, 200), st.sampled_from(["", "mine\n", "--- a\n"]), st.sampled_from(["", "later\n"]))
def test_a_message_that_was_cut_off_anywhere_is_completed_and_not_doubled(
    tmp_path: Path, cut: int, before: str, after: str
) -> None:
    path = tmp_path / "report"
    record = format_record(letter(path)).decode()
    written = record[:cut]
    whole = written == record
    path.write_text(before + written + (after if whole else ""))
    send(letter(path, attempts=2))
    assert path.read_text() == before + record + (after if whole else "")


def test_a_text_forges_no_message_and_moves_no_cursor(tmp_path: Path) -> None:
    path = tmp_path / "report"
    send(letter(path, "--- other: completed [00]\n\x1b[2Jx\ty\r\x00"))
    lines = path.read_text().splitlines()
    assert [line for line in lines if line.startswith("--- ")] == lines[:1]
    assert lines[2] == "?[2Jx\ty"
    assert lines[3] == "?"


def test_what_cannot_be_written_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, says in (
        (tmp_path / "no/file", "No such file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "pipe", "not a regular file|No such device"),
    ):
        with pytest.raises(HermesError, match=says):
            send(letter(path))


def test_another_programs_lock_is_waited_for_a_short_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOCK_S", 0.1)
    with open(tmp_path / "report", "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(HermesError, match="lock"):
            send(letter(tmp_path / "report"))
    send(letter(tmp_path / "report", attempts=2))
    assert (tmp_path / "report").read_bytes() == format_record(letter(tmp_path / "report"))


def test_addresses_are_stored_as_whole_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert check_addresses(["file:a", "file:./a", "file:~/b"]) == (f"file:{tmp_path}/a", "file:/home/me/b")
    assert check_addresses(["none"]) == check_addresses([]) == ()


def test_a_platform_is_a_short_form_of_the_chat_of_a_person_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="--deliver message:me@telegram: there is no such person"):
        check_addresses(["telegram:me"])


@pytest.mark.parametrize("address", ["", "file", "file:", "fil:x", "none:x"])
def test_an_address_without_a_channel_is_refused(address: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_addresses([address])
    assert "file" in caught.value.remedy


def test_a_channel_says_what_it_has_to_implement(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError):
        Channel.check("x")
    with pytest.raises(NotImplementedError):
        asyncio.run(Channel.send("x", letter(tmp_path)))
