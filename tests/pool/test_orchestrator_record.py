"""What is written down: enough to come back, nothing secret, and never taken from the living."""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hermes_exec import ConfigError, Orchestrator, Pool
from hermes_exec.pool.journal import Journal, JournalEntry
from hermes_exec.pool.owner import Liveness, Owner
from hermes_exec_backends.local import LocalBackend

Bounded = Callable[..., None]
ENTRY = JournalEntry("0123456789abcdef", "p", "alice", "local")


def written_by(owner: Owner) -> Journal:
    """The record of an orchestrator of that process, with one entry."""
    journal = Journal()
    journal.begin()
    (journal.folder / "owner.json").write_text(json.dumps(owner.values))
    journal.write(ENTRY)
    return journal


def dead() -> Owner:
    """A process that has ended."""
    with subprocess.Popen(["true"]) as process:
        pass
    return replace(Owner.current(), pid=process.pid)


def test_this_process_lives() -> None:
    assert Owner.current().liveness is Liveness.LIVING


def test_a_process_that_has_ended_is_dead() -> None:
    assert dead().liveness is Liveness.DEAD


def test_another_process_of_the_same_number_is_not_taken_for_it() -> None:
    assert replace(Owner.current(), started=1).liveness is Liveness.DEAD


def test_a_process_of_before_the_last_boot_is_dead() -> None:
    restarted = replace(Owner.current(), boot="another")
    assert restarted.liveness is (Liveness.DEAD if restarted.machine else Liveness.ELSEWHERE)
    assert replace(restarted, machine="a clone of another machine").liveness is Liveness.ELSEWHERE


@pytest.mark.parametrize(
    "owner",
    [replace(Owner.current(), host="another"), replace(Owner.current(), namespace="pid:[1]")],
    ids=["host", "container"],
)
def test_of_a_process_elsewhere_nothing_is_known(owner: Owner) -> None:
    assert owner.liveness is Liveness.ELSEWHERE


@pytest.mark.parametrize("owner", [Owner.current(), replace(dead(), host="another")], ids=["living", "elsewhere"])
def test_nothing_is_taken_from_one_that_may_live(owner: Owner) -> None:
    theirs, mine = written_by(owner), Journal()
    mine.begin()
    assert mine.claim() == []
    assert theirs.entries() == [ENTRY]


def test_what_a_dead_one_left_belongs_to_the_first_that_claims_it() -> None:
    theirs, first, second = written_by(dead()), Journal(), Journal()
    first.begin()
    second.begin()
    assert first.claim() == [ENTRY]
    assert second.claim() == []
    assert first.entries() == [ENTRY]
    assert not theirs.folder.exists()


def test_an_orchestrator_that_still_has_something_to_look_after_leaves_its_record() -> None:
    journal = written_by(Owner.current())
    journal.end()
    assert journal.entries() == [ENTRY]
    journal.remove(ENTRY)
    journal.end()
    assert not journal.folder.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"{}",
        json.dumps({"id": "fedcba9876543210", "profile": "p", "key": "", "target": "local"}).encode(),
        json.dumps({"id": ENTRY.id, "profile": "p", "key": "\x1b[2J", "target": "local"}).encode(),
        json.dumps(
            {"id": ENTRY.id, "profile": "p", "key": "", "target": "local", "guest": {}, "client": "00"}
        ).encode(),
    ],
    ids=["empty", "no text", "nested", "no fields", "of another name", "not printable", "no guest"],
)
def test_a_file_that_makes_no_sense_is_left_alone_and_named(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    theirs, mine = written_by(dead()), Journal()
    mine.begin()
    (theirs.folder / f"{ENTRY.id}.json").write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert mine.claim() == []
    assert ENTRY.id in caplog.text
    assert len(list(mine.folder.iterdir())) == 2


def test_a_folder_that_does_not_say_whose_it_is_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    theirs, mine = written_by(dead()), Journal()
    mine.begin()
    (theirs.folder / "owner.json").write_text('{"pid": "1"}')
    with caplog.at_level(logging.WARNING):
        assert mine.claim() == []
    assert "does not say whose" in caplog.text
    assert theirs.entries() == [ENTRY]


def test_the_record_is_private_and_has_no_variables_or_commands(bounded: Bounded, state: Path) -> None:
    async def scenario() -> None:
        pool = Pool("local", env={"PASSWORD": "hunter2"}, audit=False)
        async with Orchestrator({"p": pool}) as orchestrator, orchestrator.terminal("p", key="alice") as terminal:
            await terminal.run("echo hunter3; export TOKEN=hunter4")
            files = [*state.glob("*/*.json")]
            assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
            assert {path.stat().st_mode & 0o777 for path in state.glob("*")} == {0o700}
            assert "hunter" not in "".join(path.read_text() for path in files)

    bounded(scenario())


def test_whose_terminal_it_is_is_written_down(bounded: Bounded, state: Path, soon: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with Orchestrator() as orchestrator, orchestrator.terminal("local", key="alice"):
            await soon(lambda: '"key": "alice"' in "".join(path.read_text() for path in state.glob("*/*.json")))

    bounded(scenario())


def test_where_nothing_can_be_written_nothing_is_opened(bounded: Bounded, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a folder should be")

    async def scenario() -> None:
        with pytest.raises(ConfigError, match="no record can be kept"):
            await Orchestrator().start()

    bounded(scenario())


def test_a_lease_has_its_key_recorded_when_it_is_handed_out(bounded: Bounded, state: Path) -> None:
    async def scenario() -> None:
        async with (
            Orchestrator({"p": Pool(LocalBackend, audit=False)}) as orchestrator,
            orchestrator.terminal("p", key="bob"),
        ):
            records = [json.loads(path.read_text()) for path in state.glob("*/*.json") if path.stem != "owner"]
            assert [record["key"] for record in records] == ["bob"]

    bounded(scenario())
