"""Runs: overlaps, failures in a row, tickers that are lost, and what is delivered."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import HermesError, OutcomeUnknown, PlaceUnavailable, UsageError
from hermes_exec_agent.scheduler.holder import format_holder
from hermes_exec_agent.scheduler.jobs import add_job, approve_job, find_job, pause_job, remove_job, resume_job
from hermes_exec_agent.scheduler.outbox import take_delivery
from hermes_exec_agent.scheduler.recording import record_due
from hermes_exec_agent.scheduler.slots import RunResult, begin_slot, finish_slot, list_deliveries, take_slots
from hermes_exec_agent.scheduler.ticker import Ticker
from tests.rigs.scheduling import elsewhere, moment, spec

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.rigs.scheduling import Desk


@contextlib.asynccontextmanager
async def running(desk: Desk, ticker: Ticker | None = None) -> AsyncGenerator[asyncio.Task[int]]:
    """A tick whose run does not end before it is released."""
    desk.runs.hold.clear()
    desk.runs.has_begun.clear()
    task = asyncio.create_task((ticker or desk.ticker()).tick())
    await asyncio.wait_for(desk.runs.has_begun.wait(), 10)
    try:
        yield task
    finally:
        desk.runs.hold.set()
        await asyncio.gather(task, return_exceptions=True)


async def until(desk: Desk, expected: list[str]) -> None:
    """Wait until the slots have these states."""
    async with asyncio.timeout(10):
        while [state for state, _ in desk.history()] != expected:
            await asyncio.sleep(0.01)


def test_a_slot_is_skipped_and_reported_while_the_run_before_it_lasts(desk: Desk) -> None:
    desk.add("0 * * * *")

    async def work() -> None:
        desk.clock.set("2026-11-02T08:00")
        async with running(desk):
            await desk.tick("2026-11-02T09:00")
            assert [state for state, _ in desk.history()] == ["running", "skipped"]

    asyncio.run(work())
    assert [state for state, _ in desk.history()] == ["completed", "skipped"]
    assert desk.slots()[1].reason == "the run of 2026-11-02T08:00+01:00 has not ended"
    assert sorted(sent.subject.split(",")[0] for sent in desk.mail.sent) == ["job: completed", "job: skipped"]


def test_slots_queue_and_run_in_their_order(desk: Desk) -> None:
    desk.add("0 * * * *", overlap="queue")

    async def work() -> None:
        desk.clock.set("2026-11-02T08:00")
        async with running(desk):
            for hour in ("09:00", "10:00"):
                await desk.tick(f"2026-11-02T{hour}")
            assert [state for state, _ in desk.history()] == ["running", "claimed", "claimed"]
        await desk.tick("2026-11-02T10:01")

    asyncio.run(work())
    assert [state for state, _ in desk.history()] == ["completed"] * 3
    assert desk.runs.begun == [moment(f"2026-11-02T{hour}") for hour in ("08:00", "09:00", "10:00")]


def test_the_next_slot_ends_the_run_before_it(desk: Desk) -> None:
    desk.add("0 * * * *", overlap="kill")

    async def work() -> None:
        desk.clock.set("2026-11-02T08:00")
        async with running(desk):
            await desk.tick("2026-11-02T09:00")
            await until(desk, ["failed", "running"])

    asyncio.run(work())
    assert [state for state, _ in desk.history()] == ["failed", "completed"]
    assert desk.slots()[0].reason == "ended for the slot of 2026-11-02T09:00+01:00"
    assert find_job(desk.store, "job").failures == 0


def test_five_failures_in_a_row_pause_the_job_and_say_so(desk: Desk) -> None:
    desk.add("0 8 * * *")
    failed = RunResult("failed", "text", "exit code 3")
    desk.runs.results = [failed] * 4 + [RunResult("completed")] + [failed] * 5
    for day in range(2, 14):
        asyncio.run(desk.tick(f"2026-11-{day:02}T08:00"))
    assert [state for state, _ in desk.history()] == ["failed"] * 4 + ["completed"] + ["failed"] * 5
    job = find_job(desk.store, "job")
    assert (job.state, job.failures) == ("paused", 5)
    assert "the job is paused: 5 failures in a row; hermes-exec cron resume job" in desk.mail.sent[-1].body
    resume_job(desk.store, job, desk.clock.now())
    asyncio.run(desk.tick("2026-11-14T08:00"))
    assert desk.history()[-1] == ("completed", "2026-11-14T08:00")


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (PlaceUnavailable("no route to host"), "failed"),
        (OutcomeUnknown("the connection broke"), "unknown"),
        (ZeroDivisionError("a bug"), "failed"),
    ],
)
def test_an_error_ends_the_slot_and_not_the_ticker(desk: Desk, error: Exception, state: str) -> None:
    desk.add("0 8 * * *")

    async def fail(job: object, slot: object) -> RunResult:
        raise error

    desk.clock.set("2026-11-02T08:00")
    asyncio.run(Ticker(desk.store, fail, desk.mail, clock=desk.clock).tick())
    assert desk.history() == [(state, "2026-11-02T08:00")]
    assert str(error) in desk.slots()[0].reason
    assert str(error) in desk.mail.sent[0].body


def test_a_ticker_that_is_stopped_records_the_end_of_its_runs(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes_exec_agent.scheduler.ticker._GRACE_S", 0.1)
    desk.add("0 8 * * *")

    async def work() -> None:
        desk.clock.set("2026-11-02T08:00")
        async with running(desk) as task:
            task.cancel()
            await until(desk, ["failed"])

    asyncio.run(work())
    assert desk.history() == [("failed", "2026-11-02T08:00")]
    assert desk.slots()[0].reason == "its ticker was stopped"


def test_a_run_of_a_lost_ticker_is_of_unknown_outcome_and_not_repeated(desk: Desk) -> None:
    desk.add("0 8 * * *")

    async def work() -> None:
        desk.clock.set("2026-11-02T08:00")
        async with running(desk, desk.ticker(owner=elsewhere())):
            await desk.tick("2026-11-02T08:01")
            assert desk.history() == [("running", "2026-11-02T08:00")]  # its lease lasts
            await desk.tick("2026-11-02T08:10")
            assert desk.history() == [("unknown", "2026-11-02T08:00")]
            assert "another-machine was lost" in desk.slots()[0].reason
            assert [sent.subject for sent in desk.mail.sent] == ["job: unknown, 2026-11-02T08:00+01:00"]
            assert len(desk.runs.begun) == 1

    asyncio.run(work())
    # the ticker was not dead, and reports the end that it knows
    assert desk.history() == [("completed", "2026-11-02T08:00")]


def test_a_slot_that_a_lost_ticker_took_and_did_not_begin_is_run_by_another(desk: Desk) -> None:
    desk.add("0 8 * * *")
    desk.clock.set("2026-11-02T08:00")
    record_due(desk.store, desk.clock.now(), "host")
    taken = take_slots(desk.store, format_holder(elsewhere()), desk.clock.now(), 4)
    assert len(taken) == 1
    asyncio.run(desk.tick("2026-11-02T08:01"))
    assert desk.runs.begun == []
    asyncio.run(desk.tick("2026-11-02T08:03"))
    assert desk.history() == [("completed", "2026-11-02T08:00")]
    assert len(desk.runs.begun) == 1


def test_a_ticker_that_was_taken_for_lost_does_not_begin_what_another_has(desk: Desk) -> None:
    desk.add("0 8 * * *")
    desk.clock.set("2026-11-02T08:00")
    first, second = format_holder(elsewhere(1)), format_holder(elsewhere(2))
    record_due(desk.store, desk.clock.now(), "host")
    ((_, slot),) = take_slots(desk.store, first, desk.clock.now(), 4)
    desk.clock.set("2026-11-02T08:03")
    record_due(desk.store, desk.clock.now(), "host")
    ((_, again),) = take_slots(desk.store, second, desk.clock.now(), 4)
    assert again.id == slot.id
    assert not begin_slot(desk.store, slot, first, desk.clock.now())
    assert begin_slot(desk.store, again, second, desk.clock.now())
    assert not finish_slot(desk.store, slot, first, RunResult("completed"), desk.clock.now())
    assert [state for state, _ in desk.history()] == ["running"]


def test_a_ticker_runs_so_many_at_the_same_time_and_the_others_after_them(desk: Desk) -> None:
    for number in range(6):
        desk.add("0 8 * * *", name=f"job-{number}")

    async def work() -> None:
        desk.clock.set("2026-11-02T08:00")
        async with running(desk, desk.ticker(most=2)):
            await until(desk, ["running"] * 2 + ["claimed"] * 4)
            desk.runs.hold.set()
            await until(desk, ["completed"] * 6)

    asyncio.run(work())


def test_a_paused_job_runs_nothing_that_waited(desk: Desk) -> None:
    job = desk.add("0 * * * *", overlap="queue")

    async def work() -> None:
        desk.clock.set("2026-11-02T08:00")
        async with running(desk):
            await desk.tick("2026-11-02T09:00")
            pause_job(desk.store, find_job(desk.store, job.name), desk.clock.now())
            assert [state for state, _ in desk.history()] == ["running", "skipped"]

    asyncio.run(work())


def test_a_removed_job_ends_and_keeps_its_history(desk: Desk) -> None:
    job = desk.add("0 * * * *")

    async def work() -> None:
        desk.clock.set("2026-11-02T08:00")
        async with running(desk):
            remove_job(desk.store, job, desk.clock.now())
            await until(desk, ["failed"])

    asyncio.run(work())
    assert desk.slots()[0].reason == "the job was removed"
    desk.add("0 * * * *")  # its name is free again
    with pytest.raises(UsageError, match="there is a job 'job' already"):
        desk.add("0 * * * *")


def test_a_person_runs_a_job_at_any_time_but_not_twice_at_once(desk: Desk) -> None:
    job = desk.add("0 8 * * *")

    async def work() -> None:
        slot = await desk.ticker().run_now(job)
        assert (slot.state, slot.cause, slot.text) == ("completed", "person", "done")
        desk.clock.set("2026-11-02T08:00")
        async with running(desk):
            with pytest.raises(UsageError, match="runs already"):
                await desk.ticker().run_now(job)

    asyncio.run(work())


def test_a_job_of_an_agent_runs_only_after_a_person_approved_it(desk: Desk) -> None:
    job = add_job(desk.store, spec("0 8 * * *"), desk.clock.now(), author="some-model")
    asyncio.run(desk.tick("2026-11-03T08:00"))
    assert desk.history() == []
    with pytest.raises(UsageError, match="waiting"):
        asyncio.run(desk.ticker().run_now(job))
    approve_job(desk.store, job, desk.clock.now())
    asyncio.run(desk.tick("2026-11-04T08:00"))
    assert desk.history() == [("completed", "2026-11-04T08:00")]
    with pytest.raises(UsageError, match="waits for no approval"):
        approve_job(desk.store, job, desk.clock.now())


def test_agents_cannot_fill_the_list_of_jobs(desk: Desk) -> None:
    for _ in range(20):
        add_job(desk.store, spec("0 8 * * *"), desk.clock.now(), author="some-model")
    with pytest.raises(UsageError, match="20 jobs wait"):
        add_job(desk.store, spec("0 8 * * *"), desk.clock.now(), author="some-model")


# Deliveries


def test_a_delivery_is_tried_again_until_it_succeeds(desk: Desk) -> None:
    desk.add("0 8 * * *")
    desk.mail.error = HermesError("the disk is full")
    asyncio.run(desk.tick("2026-11-02T08:00"))
    slot = desk.slots()[0]
    assert slot.state == "completed"
    (found,) = list_deliveries(desk.store, slot.id)
    assert (found["state"], found["attempts"], found["error"]) == ("pending", 1, "the disk is full")
    desk.mail.error = None
    asyncio.run(desk.tick("2026-11-02T08:00"))
    assert desk.mail.sent == []
    asyncio.run(desk.tick("2026-11-02T08:01"))
    assert len(desk.mail.sent) == 1
    assert list_deliveries(desk.store, slot.id)[0]["state"] == "delivered"
    assert len(desk.runs.begun) == 1


def test_a_delivery_is_given_up_after_a_day_and_says_why(desk: Desk) -> None:
    desk.add("at 2026-11-02T08:00")
    desk.mail.error = OSError("broken")
    desk.clock.set("2026-11-02T08:00")
    for _ in range(60):
        asyncio.run(desk.tick())
        desk.clock.at += 1800
    (found,) = list_deliveries(desk.store, desk.slots()[0].id)
    assert (found["state"], found["attempts"], found["error"]) == ("failed", 9, "broken")


def test_a_delivery_of_a_lost_ticker_is_sent_by_another(desk: Desk) -> None:
    desk.add("0 8 * * *")
    desk.mail.error = HermesError("not now")
    asyncio.run(desk.tick("2026-11-02T08:00"))
    desk.mail.error = None
    desk.clock.set("2026-11-02T08:02")
    taken = take_delivery(desk.store, format_holder(elsewhere()), desk.clock.now())
    assert taken is not None
    asyncio.run(desk.tick("2026-11-02T08:03"))
    assert desk.mail.sent == []
    asyncio.run(desk.tick("2026-11-02T08:09"))
    assert [sent.key for sent in desk.mail.sent] == [taken.key]


@pytest.mark.parametrize(
    ("result", "is_sent"),
    [
        (RunResult("completed", "[SILENT]"), False),
        (RunResult("completed", "nothing new. [SILENT]"), False),
        (RunResult("completed", "news"), True),
        (RunResult("failed", "[SILENT]", "exit code 1"), True),
        (RunResult("unknown", "[SILENT]"), True),
    ],
)
def test_silence_is_for_successes_alone(desk: Desk, result: RunResult, is_sent: bool) -> None:
    desk.add("0 8 * * *")
    desk.runs.results = [result]
    asyncio.run(desk.tick("2026-11-02T08:00"))
    assert len(desk.mail.sent) == is_sent
    assert list_deliveries(desk.store, desk.slots()[0].id)[0]["state"] == ("delivered" if is_sent else "suppressed")


def test_a_silent_run_still_reports_the_slots_that_were_missed_before_it(desk: Desk) -> None:
    desk.add("0 8 * * *")
    desk.runs.results = [RunResult("completed", "secret [SILENT]")]
    asyncio.run(desk.tick("2026-11-04T12:00"))
    (sent,) = desk.mail.sent
    assert "missed before: 3 slots" in sent.body
    assert "secret" not in sent.body


def test_the_latest_texts_are_kept_and_all_rows(desk: Desk) -> None:
    desk.add("0 8 * * *")
    desk.clock.set("2026-11-02T08:00")
    for _ in range(53):
        asyncio.run(desk.tick())
        desk.clock.at += 86400
    texts = [slot.text for slot in desk.slots()]
    assert texts == [None] * 3 + ["done"] * 50
    with desk.store.snapshot() as base:
        assert base is not None
        bodies = [row["body"] for row in base.execute("SELECT body FROM deliveries ORDER BY id")]
    assert [body != "" for body in bodies] == [False] * 3 + [True] * 50
