"""The record of billed targets, and the sum of those that have ended."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hermes_exec.observe import spending

if TYPE_CHECKING:
    from pathlib import Path

HOUR = 3600.0
MIDNIGHT = 1_800_000_000.0
NOW = MIDNIGHT + 10 * HOUR


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "hermes_exec" / "spending.jsonl"


def record(monkeypatch: pytest.MonkeyPatch, hour: float, target: str, price: float | None = None, **end: bool) -> None:
    monkeypatch.setattr("time.time", lambda: MIDNIGHT + hour * HOUR)
    if end:
        spending.record_end(target)
    else:
        spending.record_start(target, price, "")


def test_ended_targets_cost_their_hours_since_midnight(monkeypatch: pytest.MonkeyPatch) -> None:
    record(monkeypatch, -2, "modal:@a", 1.0)
    record(monkeypatch, 1, "modal:@b", 0.5)
    record(monkeypatch, 3, "modal:@a", end=True)
    record(monkeypatch, 3, "modal:@b", end=True)
    record(monkeypatch, 4, "daytona:@kept", 2.0)
    record(monkeypatch, 5, "daytona:@kept", end=True)
    record(monkeypatch, 6, "daytona:@kept", 2.0)
    found = spending.sum_spent(MIDNIGHT, NOW, {"daytona:@kept"})
    assert found.cost == pytest.approx(3.0 + 1.0 + 2.0)
    assert (found.count, found.unknown) == (3, 0)


def test_what_is_not_known_is_counted_and_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    record(monkeypatch, -30, "modal:@long-ago", 1.0)
    record(monkeypatch, 1, "modal:@vanished", 1.0)
    record(monkeypatch, 2, "modal:@alive", 1.0)
    record(monkeypatch, 3, "modal:@unpriced")
    record(monkeypatch, 4, "modal:@unpriced", end=True)
    found = spending.sum_spent(MIDNIGHT, NOW, {"modal:@alive"})
    assert (found.cost, found.count, found.unknown) == (0.0, 0, 2)


def test_lines_of_another_form_are_left_out(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(monkeypatch, 1, "modal:@a", 1.0)
    bad = [
        "[]",
        "{",
        '"x"',
        '{"event": "end", "target": 1, "at": 2}',
        '{"event": "end", "target": "modal:@a"}',
        "[" * 9999,
    ]
    bad.append(json.dumps({"event": "start", "target": "modal:@a", "at": "now", "hourly_cost": 9}))
    with state.open("a") as file:
        file.write("\n".join(bad) + "\n")
    record(monkeypatch, 2, "modal:@a", end=True)
    assert spending.sum_spent(MIDNIGHT, NOW, ()).cost == pytest.approx(1.0)
    assert state.stat().st_mode & 0o077 == 0


def test_a_record_that_cannot_be_written_stops_nothing(state: Path, caplog: pytest.LogCaptureFixture) -> None:
    state.mkdir(parents=True)
    spending.record_start("modal:@a", 1.0, "")
    assert "misses modal:@a" in caplog.text
    assert spending.sum_spent(MIDNIGHT, NOW, ()).cost == 0.0
