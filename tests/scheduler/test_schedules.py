"""Schedules are due when Debian's cron is, in the time zone of the job."""

from __future__ import annotations

import itertools
import os
import time
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import time_machine
from croniter import croniter
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_exec.errors import UsageError
from hermes_exec_agent.scheduler.schedule import MANY, find_due, find_local_zone, format_moment, parse_schedule
from tests.rigs.scheduling import ZONE, moment


def due(schedule: str, after: str, number: int, zone: str = ZONE) -> list[str]:
    found = parse_schedule(schedule, zone, moment(after, zone)).slots(moment(after, zone))
    return [format_moment(slot, zone) for slot in itertools.islice(found, number)]


# Clocks go back on 25 October 2026 at 03:00 to 02:00, and forward on 29 March 2026 at 02:00 to 03:00 in Berlin; in New
# York on 1 November at 02:00 to 01:00, and on 8 March at 02:00 to 03:00.
@pytest.mark.parametrize(
    ("schedule", "zone", "after", "expected"),
    [
        # daily at a time that comes twice: once, at its first time
        ("30 1 * * *", "America/New_York", "2026-10-31T12:00", ["2026-11-01T01:30-04:00", "2026-11-02T01:30-05:00"]),
        ("30 2 * * *", ZONE, "2026-10-24T12:00", ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]),
        # daily at a time that does not come: right after the gap
        ("30 2 * * *", ZONE, "2026-03-28T12:00", ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"]),
        ("30 2 * * *", "America/New_York", "2026-03-07T12:00", ["2026-03-08T03:00-04:00", "2026-03-09T02:30-04:00"]),
        # two times within the gap: once
        ("0,30 2 * * *", ZONE, "2026-03-29T01:00", ["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00"]),
        # every hour and every half hour: by the time that passes
        ("0 * * * *", ZONE, "2026-10-25T01:30", ["2026-10-25T02:00+02:00", "2026-10-25T02:00+01:00",
                                                 "2026-10-25T03:00+01:00"]),
        ("*/30 * * * *", ZONE, "2026-03-29T01:15", ["2026-03-29T01:30+01:00", "2026-03-29T03:00+02:00"]),
        # leap days
        ("0 8 29 2 *", ZONE, "2026-01-01T00:00", ["2028-02-29T08:00+01:00", "2032-02-29T08:00+01:00"]),
        ("0 8 29 2 *", "UTC", "2096-03-01T00:00", ["2104-02-29T08:00+00:00"]),
        # day of the month or day of the week, if both are restricted; with a star both
        ("0 8 13 * fri", ZONE, "2026-11-01T00:00", ["2026-11-06T08:00+01:00", "2026-11-13T08:00+01:00",
                                                    "2026-11-20T08:00+01:00"]),
        ("0 8 1 * mon", ZONE, "2026-11-28T00:00", ["2026-11-30T08:00+01:00", "2026-12-01T08:00+01:00",
                                                   "2026-12-07T08:00+01:00"]),
        ("0 8 */2 * mon", ZONE, "2026-11-01T00:00", ["2026-11-09T08:00+01:00", "2026-11-23T08:00+01:00"]),
        ("0 8 31 * *", ZONE, "2026-11-01T00:00", ["2026-12-31T08:00+01:00", "2027-01-31T08:00+01:00"]),
        ("0 0 * * 7", "UTC", "2026-11-02T00:00", ["2026-11-08T00:00+00:00"]),
        ("@weekly", "UTC", "2026-11-02T00:00", ["2026-11-08T00:00+00:00"]),
        # intervals pass over changes of the clocks
        ("every 30m", ZONE, "2026-10-25T01:45", ["2026-10-25T02:15+02:00", "2026-10-25T02:45+02:00",
                                                 "2026-10-25T02:15+01:00"]),
        ("every 1d", ZONE, "2026-03-28T12:00", ["2026-03-29T13:00+02:00"]),
        ("at 2026-12-01T08:00", ZONE, "2026-11-01T00:00", ["2026-12-01T08:00+01:00"]),
        ("at 2026-12-01T08:00Z", ZONE, "2026-11-01T00:00", ["2026-12-01T09:00+01:00"]),
        ("at 2026-12-01T08:00", ZONE, "2026-12-01T08:00", []),
    ],
)  # fmt: skip
def test_slots(schedule: str, zone: str, after: str, expected: list[str]) -> None:
    assert due(schedule, after, max(len(expected), 1), zone) == expected


def test_another_library_repeats_a_slot_when_clocks_go_back() -> None:
    zone = "America/New_York"
    begin = datetime(2026, 10, 31, 12, tzinfo=ZoneInfo(zone))
    other = croniter("30 1 * * *", begin)
    theirs = [format_moment(other.get_next(float), zone) for _ in range(2)]
    assert theirs == ["2026-11-01T01:30-04:00", "2026-11-01T01:30-05:00"]
    assert due("30 1 * * *", "2026-10-31T12:00", 2, zone) == ["2026-11-01T01:30-04:00", "2026-11-02T01:30-05:00"]


@pytest.mark.parametrize("schedule", ["30 1 * * *", "0,30 1,2 * * *", "15 2 * * *", "*/7 * * * *", "5 4 * * sun"])
@pytest.mark.parametrize("day", ["2026-10-25", "2026-03-29"])
def test_slots_are_the_same_from_whatever_moment_they_are_counted(schedule: str, day: str) -> None:
    parsed = parse_schedule(schedule, ZONE, 0)
    begin = moment(f"{day}T00:00")
    whole = list(itertools.takewhile(lambda slot: slot < begin + 86400, parsed.slots(begin)))
    for minute in range(0, 26 * 60, 5):
        after = begin + minute * 60
        rest = list(itertools.takewhile(lambda slot: slot < begin + 86400, parsed.slots(after)))
        assert rest == [slot for slot in whole if slot > after]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["*/15 * * * *", "30 2 * * *", "0 8 1 * mon", "every 17m", "0 0 29 2 *"]),
    st.floats(1.7e9, 2.0e9), st.floats(0, 40 * 86400.0),
)  # fmt: skip
def test_slots_rise_and_none_is_lost_between_two_looks(schedule: str, begin: float, length: float) -> None:
    parsed = parse_schedule(schedule, ZONE, 1.7e9)
    middle = begin + length / 3
    whole = find_due(parsed, begin, begin + length)
    first, second = find_due(parsed, begin, middle), find_due(parsed, middle, begin + length)
    assert (whole.count if whole else 0) == sum(each.count for each in (first, second) if each)
    for found in filter(None, (whole, first, second)):
        assert begin < found.first <= found.last <= begin + length
        assert list(found.listed) == sorted(set(found.listed))
        assert len(found.listed) == (found.count if found.count < MANY else 0)


def test_many_due_slots_are_counted_and_not_listed() -> None:
    for schedule in ("* * * * *", "every 1m"):
        found = find_due(parse_schedule(schedule, "UTC", 0), 0, 60 * MANY)
        assert found is not None
        assert (found.first, found.last, found.count, found.listed) == (60, 60 * MANY, MANY, ())


@pytest.mark.parametrize(
    "text",
    [
        "", "hello", "* * * *", "* * * * * *", "61 * * * *", "0 0 30 2 *", "0 0 31 2,4 *", "every", "every 10s",
        "every x", "every 90.5s", "at", "at noon", "at 2026-12-01", "at 2026-13-01T00:00", "at 2026-03-29T02:30",
        "@reboot", "every 3651d", "every 99999999999999d", f"every {'9' * 400}d", "at 0001-01-01T00:00",
        "at 1969-12-31T23:59", "at 3000-01-01T00:00", "at 9999-12-31T23:59-14:00",
    ],
)  # fmt: skip
def test_a_wrong_schedule_is_one_line_with_a_remedy(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_schedule(text, ZONE, 0)
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["Mars/Olympus", "../../etc/passwd", "/etc/passwd", "", "Europe", "a\nb"])
def test_a_wrong_time_zone_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="time zone"):
        parse_schedule("every 15m", name, 0)


def test_the_zone_of_the_machine_is_found(tmp_path: Path) -> None:
    assert find_local_zone({}, tmp_path) == "UTC"
    (tmp_path / "timezone").write_text("America/New_York\n")
    assert find_local_zone({}, tmp_path) == "America/New_York"
    os.symlink("/usr/share/zoneinfo/Asia/Tokyo", tmp_path / "localtime")
    assert find_local_zone({}, tmp_path) == "Asia/Tokyo"
    assert find_local_zone({"TZ": ":Europe/Berlin"}, tmp_path) == "Europe/Berlin"
    assert find_local_zone({"TZ": "CET-1CEST"}, tmp_path) == "Asia/Tokyo"


def test_slots_do_not_depend_on_the_zone_or_the_clock_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = due("30 2 * * *", "2026-10-24T12:00", 3)
    for zone in ("Asia/Tokyo", "America/New_York", "UTC"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        with time_machine.travel(datetime(2031, 5, 1, tzinfo=ZoneInfo(zone))):
            assert due("30 2 * * *", "2026-10-24T12:00", 3) == expected
    monkeypatch.undo()
    time.tzset()
