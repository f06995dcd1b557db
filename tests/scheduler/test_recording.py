"""Each slot has one row and one recorded end, whatever the clock does and however many tickers run."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import HermesError
from hermes_exec_agent.scheduler.jobs import edit_job, find_job, list_jobs, pause_job, remove_job, resume_job
from hermes_exec_agent.scheduler.recording import record_due
from hermes_exec_agent.scheduler.schedule import find_due
from hermes_exec_agent.scheduler.server_ticks import has_work
from hermes_exec_agent.scheduler.storage import CronStore
from tests.rigs.scheduling import SetClock, elsewhere, moment, spec

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.scheduler.schedule import DueSlots, Schedule
    from tests.rigs.scheduling import Desk


def use_journal(monkeypatch: pytest.MonkeyPatch, *, shared: bool) -> None:
    def answer(folder: Path) -> bool:
        return shared

    monkeypatch.setattr("hermes_exec_agent.database_files.is_shared", answer)


def test_a_slot_runs_once_and_its_end_is_delivered(desk: Desk) -> None:
    desk.add("0 8 * * *")
    asyncio.run(desk.tick("2026-11-02T07:59"))
    assert desk.history() == []
    asyncio.run(desk.tick("2026-11-02T08:00"))
    asyncio.run(desk.tick("2026-11-02T08:01"))
    assert desk.history() == [("completed", "2026-11-02T08:00")]
    assert [(sent.subject, sent.body) for sent in desk.mail.sent] == [
        ("job: completed, 2026-11-02T08:00+01:00", "done")
    ]
    slot = desk.slots()[0]
    assert (slot.text, slot.cause, slot.began, slot.ended) == ("done", "schedule", moment("2026-11-02T08:00"),
                                                               moment("2026-11-02T08:00"))  # fmt: skip


def test_a_job_survives_two_mondays_of_sleep(desk: Desk) -> None:
    desk.add("0 8 * * mon")
    asyncio.run(desk.tick("2026-11-18T12:00"))  # Mondays: the 2nd, the 9th, the 16th
    assert desk.history() == [
        ("missed", "2026-11-02T08:00"),
        ("missed", "2026-11-09T08:00"),
        ("missed", "2026-11-16T08:00"),
        ("completed", "2026-11-18T12:00"),
    ]
    assert desk.runs.begun == [moment("2026-11-18T12:00")]
    (sent,) = desk.mail.sent
    assert "missed before: 3 slots from 2026-11-02T08:00+01:00 to 2026-11-16T08:00+01:00" in sent.body
    asyncio.run(desk.tick("2026-11-18T12:01"))
    assert len(desk.slots()) == 4


def test_missed_slots_are_reported_and_not_run_if_the_job_says_so(desk: Desk) -> None:
    desk.add("0 8 * * *", if_missed="skip")
    asyncio.run(desk.tick("2026-11-04T12:00"))
    assert [state for state, _ in desk.history()] == ["missed"] * 3
    assert desk.runs.begun == []
    (sent,) = desk.mail.sent
    assert sent.subject == "job: missed, 3 slots from 2026-11-02T08:00+01:00 to 2026-11-04T08:00+01:00"


def test_a_question_after_missed_slots_names_the_command_that_answers_it(desk: Desk) -> None:
    desk.add("0 8 * * *", if_missed="ask")
    asyncio.run(desk.tick("2026-11-02T12:00"))
    assert desk.runs.begun == []
    assert "hermes-exec cron run job" in desk.mail.sent[0].body
    asyncio.run(desk.ticker().run_now(find_job(desk.store, "job")))
    assert [slot.cause for slot in desk.slots()] == ["schedule", "person"]


def test_a_slot_that_is_on_time_is_run_and_reports_the_earlier_ones(desk: Desk) -> None:
    desk.add("0 8 * * *", if_missed="skip")
    asyncio.run(desk.tick("2026-11-04T08:05"))
    assert [state for state, _ in desk.history()] == ["missed", "missed", "completed"]
    (sent,) = desk.mail.sent
    assert "missed before: 2 slots" in sent.body


@pytest.mark.parametrize(
    ("schedule", "limit_s"), [("0 8 * * *", 900), ("*/10 * * * *", 300), ("* * * * *", 120), ("every 1m", 120)]
)
def test_a_slot_counts_as_missed_after_half_a_period_within_bounds(desk: Desk, schedule: str, limit_s: int) -> None:
    job = desk.add(schedule, if_missed="skip")
    assert job.next is not None
    desk.clock.at = job.next + limit_s
    asyncio.run(desk.tick())
    last = desk.slots()[-1]
    assert last.state == "completed"
    assert job.late_s == limit_s


def test_a_slot_may_be_as_late_as_the_job_says(desk: Desk) -> None:
    desk.add("0 8 * * *", late_s=3 * 3600.0)
    asyncio.run(desk.tick("2026-11-02T11:00"))
    assert desk.history() == [("completed", "2026-11-02T08:00")]


@pytest.mark.parametrize("schedule", ["* * * * *", "every 1m"])
def test_a_thousand_missed_slots_become_one_row(desk: Desk, schedule: str) -> None:
    desk.add(schedule, if_missed="skip")
    desk.clock.at += 999 * 60
    asyncio.run(desk.tick())
    assert [(slot.state, slot.count) for slot in desk.slots()] == [*[("missed", 1)] * 998, ("completed", 1)]
    desk.clock.at += 1001 * 60
    asyncio.run(desk.tick())
    row = desk.slots()[-2]
    assert (row.state, row.count) == ("missed", 1000)
    assert row.last - row.slot == 999 * 60
    assert desk.slots()[-1].slot - row.last == 60
    assert "1000 slots" in desk.mail.sent[-1].body


def test_one_moment_runs_once(desk: Desk) -> None:
    job = desk.add("at 2026-12-01T08:00")
    asyncio.run(desk.tick("2026-12-01T08:00"))
    asyncio.run(desk.tick("2026-12-02T08:00"))
    assert desk.history() == [("completed", "2026-12-01T08:00")]
    assert find_job(desk.store, job.name).state == "ended"


def test_one_moment_that_was_missed_is_run_later(desk: Desk) -> None:
    desk.add("at 2026-12-01T08:00")
    asyncio.run(desk.tick("2026-12-03T10:00"))
    assert desk.history() == [("missed", "2026-12-01T08:00"), ("completed", "2026-12-03T10:00")]


@pytest.mark.parametrize("shift_s", [-3 * 3600, 3 * 3600])
def test_no_slot_runs_twice_or_is_lost_when_the_clock_jumps(desk: Desk, shift_s: int) -> None:
    desk.add("0 * * * *", if_missed="skip")
    for jump in (0, shift_s):
        desk.clock.set("2026-11-02T12:00")
        desk.clock.at += jump
        for _ in range(8):
            asyncio.run(desk.tick())
            desk.clock.at += 3600
    slots = [slot.slot for slot in desk.slots()]
    assert len(slots) == len(set(slots))
    assert slots == list(range(slots[0], slots[-1] + 3600, 3600))
    assert len(desk.runs.begun) == len(set(desk.runs.begun))


def test_the_clock_jumps_forward_and_back_again(desk: Desk) -> None:
    desk.add("0 * * * *")
    asyncio.run(desk.tick("2026-11-02T08:00"))
    asyncio.run(desk.tick("2026-11-02T11:00"))
    for hour in ("08:30", "09:00", "10:00", "11:00", "12:00"):
        asyncio.run(desk.tick(f"2026-11-02T{hour}"))
    assert desk.history() == [
        ("completed", "2026-11-02T08:00"),
        ("missed", "2026-11-02T09:00"),
        ("missed", "2026-11-02T10:00"),
        ("completed", "2026-11-02T11:00"),
        ("completed", "2026-11-02T12:00"),
    ]


def test_a_clock_that_was_years_ahead_does_not_silence_a_job(desk: Desk) -> None:
    desk.add("0 8 * * *")
    asyncio.run(desk.tick("2031-05-01T12:00"))
    asyncio.run(desk.tick("2026-11-03T07:00"))
    asyncio.run(desk.tick("2026-11-03T08:00"))
    assert desk.history()[-2:] == [("skipped", "2026-11-03T07:00"), ("completed", "2026-11-03T08:00")]
    assert "the clock went back" in desk.slots()[-2].reason
    assert "the clock went back" in desk.mail.sent[-2].body


def test_the_slots_of_a_pause_are_recorded_as_one_row_when_it_ends(desk: Desk) -> None:
    job = desk.add("0 8 * * *")
    pause_job(desk.store, job, desk.clock.now())
    asyncio.run(desk.tick("2026-11-05T12:00"))
    assert desk.history() == []
    resume_job(desk.store, find_job(desk.store, "job"), desk.clock.now())
    (row,) = desk.slots()
    assert (row.state, row.count, row.reason) == ("skipped", 4, "the job was paused: by a person")
    asyncio.run(desk.tick("2026-11-06T08:00"))
    assert desk.runs.begun == [moment("2026-11-06T08:00")]


def test_another_schedule_counts_from_now_on(desk: Desk) -> None:
    job = desk.add("0 8 * * *")
    desk.clock.set("2026-11-03T07:00")
    edit_job(desk.store, job, spec("0 9 * * *"), desk.clock.now())
    asyncio.run(desk.tick("2026-11-03T09:00"))
    assert desk.history() == [("skipped", "2026-11-02T08:00"), ("completed", "2026-11-03T09:00")]


def test_slots_that_no_ticker_saw_are_recorded_before_a_job_is_removed(desk: Desk) -> None:
    job = desk.add("0 8 * * *")
    desk.clock.set("2026-11-03T09:00")
    remove_job(desk.store, job, desk.clock.now())
    (row,) = desk.slots()
    assert (row.state, row.count, row.reason) == ("skipped", 2, "the job was removed")


def test_a_schedule_that_was_changed_meanwhile_is_not_recorded_by_the_old_one(desk: Desk) -> None:
    job = desk.add("0 8 * * *")
    edit_job(desk.store, job, spec("0 9 * * *"), desk.clock.now())
    edit_job(desk.store, job, spec("0 10 * * *"), desk.clock.now())
    assert [each.spec.schedule for each in list_jobs(desk.store)] == ["0 10 * * *"]


def test_two_tickers_record_a_slot_once(desk: Desk) -> None:
    desk.add("* * * * *")
    desk.clock.at += 60

    async def tick_twice() -> None:
        await asyncio.gather(*(desk.ticker().tick() for _ in range(4)))

    asyncio.run(tick_twice())
    assert len(desk.slots()) == len(desk.runs.begun) == 1


def test_a_slot_that_another_ticker_recorded_since_the_job_was_read_is_left_alone(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.add("* * * * *")
    desk.clock.at += 60

    def find_after_the_other(schedule: Schedule, after: float, now: float) -> DueSlots | None:
        monkeypatch.setattr("hermes_exec_agent.scheduler.recording.find_due", find_due)
        with CronStore(desk.store.path) as other:
            assert record_due(other, now, "another-machine") == 1
        return find_due(schedule, after, now)

    monkeypatch.setattr("hermes_exec_agent.scheduler.recording.find_due", find_after_the_other)
    record_due(desk.store, desk.clock.now(), "host")
    assert [state for state, _ in desk.history()] == ["claimed"]


def test_a_job_whose_zone_is_not_on_this_machine_does_not_stop_the_others(desk: Desk, tmp_path: Path) -> None:
    desk.add("0 8 * * *", name="good")
    bad = desk.add("0 8 * * *", name="bad")
    with desk.store.transaction() as base:
        base.execute("UPDATE jobs SET spec = replace(spec, 'Europe/Berlin', 'Mars/Olympus') WHERE id = ?", (bad.id,))
    asyncio.run(desk.tick("2026-11-02T08:00"))
    assert [slot.job for slot in desk.slots()] == [1]


def test_a_slot_that_waited_without_any_ticker_is_missed_and_caught_up(desk: Desk) -> None:
    desk.add("0 8 * * *")
    desk.clock.set("2026-11-02T08:00")
    record_due(desk.store, desk.clock.now(), "host")  # and the machine dies
    asyncio.run(desk.tick("2026-11-03T07:00"))
    assert desk.history() == [("missed", "2026-11-02T08:00"), ("completed", "2026-11-03T07:00")]
    assert desk.slots()[0].reason == "no ticker took it in time"
    assert len(desk.mail.sent) == 1


def test_an_end_is_never_changed_and_no_slot_goes(desk: Desk) -> None:
    desk.add("0 8 * * *")
    asyncio.run(desk.tick("2026-11-02T08:00"))
    for change in ("UPDATE slots SET state = 'failed'", "UPDATE slots SET state = 'running'", "DELETE FROM slots"):
        with pytest.raises(HermesError), desk.store.transaction() as base:
            base.execute(change)
    assert desk.history() == [("completed", "2026-11-02T08:00")]


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cron.sqlite"
    with closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE x (y)")
    with pytest.raises(HermesError, match="not a file of the scheduler"), CronStore(path).transaction():
        pass


@pytest.mark.parametrize(("shared", "journal"), [(True, "delete"), (False, "wal")])
def test_the_journal_fits_the_file_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shared: bool, journal: str
) -> None:
    use_journal(monkeypatch, shared=shared)
    with CronStore(tmp_path / "cron.sqlite") as store, store.transaction() as base:
        assert base.execute("PRAGMA journal_mode").fetchone()[0] == journal
        assert base.execute("PRAGMA synchronous").fetchone()[0] == 2  # FULL: a power failure repeats no run
    assert (tmp_path / "cron.sqlite").stat().st_mode & 0o777 == 0o600


def test_a_clock_of_another_machine_is_of_no_account(desk: Desk) -> None:
    clock = SetClock("2026-11-02T08:00")
    desk.add("0 8 * * *")
    desk.clock = clock
    asyncio.run(desk.ticker(owner=elsewhere()).tick())
    assert desk.history() == [("completed", "2026-11-02T08:00")]


def test_no_slot_is_recorded_again_if_the_schedule_is_changed_after_the_clock_went_back(desk: Desk) -> None:
    job = desk.add("0 * * * *")
    asyncio.run(desk.tick("2026-11-02T11:00"))
    desk.clock.set("2026-11-02T08:30")
    edit_job(desk.store, job, spec("0,30 * * * *"), desk.clock.now())
    for minute in ("09:00", "11:00", "11:30"):
        asyncio.run(desk.tick(f"2026-11-02T{minute}"))
    slots = [slot.slot for slot in desk.slots()]
    assert len(slots) == len(set(slots))
    assert desk.history()[-1] == ("completed", "2026-11-02T11:30")


def test_a_server_starts_a_tick_after_a_clock_that_was_ahead_went_back(desk: Desk) -> None:
    desk.add("0 8 * * *")
    asyncio.run(desk.tick("2027-11-02T08:00"))
    now = moment("2026-11-02T09:00")
    assert has_work(desk.store, now)
    desk.clock.set("2026-11-02T09:00")
    asyncio.run(desk.tick())
    assert not has_work(desk.store, now)
