"""A file of the scheduler that cannot be written to for a while: no slot is lost, and none runs twice or unrecorded."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import HermesError
from hermes_exec_agent.scheduler import ticker as module
from hermes_exec_agent.scheduler.slots import list_slots
from tests.rigs.bounded import until

if TYPE_CHECKING:
    from tests.rigs.scheduling import Desk


@pytest.mark.parametrize(
    ("change", "ran"),
    [
        ("INSERT ON slots", 0),
        ("UPDATE OF owner ON slots WHEN NEW.owner <> ''", 0),
        ("UPDATE OF state ON slots WHEN NEW.state = 'running'", 0),
        ("UPDATE OF state ON slots WHEN NEW.state = 'completed'", 1),
        ("UPDATE OF state ON deliveries WHEN NEW.state = 'delivered'", 1),
    ],
    ids=["record", "claim", "begin", "end", "delivery"],
)
def test_a_change_that_fails_is_made_once_the_disk_has_room(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, change: str, ran: int
) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", 0.02)
    desk.add("every 1h")
    with desk.store.transaction() as base:
        base.execute(f"CREATE TRIGGER full BEFORE {change} BEGIN SELECT RAISE(ABORT, 'the disk is full'); END")

    async def use() -> None:
        ticker = desk.ticker()
        serving = asyncio.create_task(ticker.serve())
        desk.clock.set("2026-11-02T08:00")
        await until(lambda: caplog.text.count("the disk is full") > 2)
        assert len(desk.runs.begun) == ran
        assert "completed" not in dict(desk.history()) or "deliveries" in change
        desk.clock.at += 600 if "'running'" in change else 0
        with desk.store.transaction() as base:
            base.execute("DROP TRIGGER full")
        await until(lambda: [state for state, _ in desk.history()] == ["completed"])
        await until(lambda: desk.mail.sent)
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving

    asyncio.run(asyncio.wait_for(use(), 60))
    assert desk.history() == [("completed", "2026-11-02T08:00")]
    assert (len(desk.runs.begun), len(desk.mail.sent)) == (1, 1)
    (slot,) = list_slots(desk.store)
    assert "'running'" not in change or slot.began == desk.clock.at  # by which others judge whether it is lost


def test_a_tick_says_that_it_cannot_record_what_is_due(desk: Desk) -> None:
    desk.add("every 1h")
    with desk.store.transaction() as base:
        base.execute("CREATE TRIGGER full BEFORE INSERT ON slots BEGIN SELECT RAISE(ABORT, 'the disk is full'); END")
    with pytest.raises(HermesError, match="the disk is full"):
        asyncio.run(desk.tick("2026-11-02T08:00"))
    assert (desk.history(), desk.runs.begun) == ([], [])
