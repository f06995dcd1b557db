"""The table of docs/cron.md that compares schedules with those of other programs at changes of the clock.

It is renewed by running this file with ``--write``, which installs hermes-agent into an environment of its own.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter

from benchmarks.peers.serve import PEERS, Peer
from hermes_exec_agent.scheduler.schedule import format_moment, parse_schedule
from tests.rigs.scheduling import ZONE, moment

DOCS = Path(__file__).parents[2] / "docs/cron.md"
NEW_YORK = "America/New_York"
CASES = (
    ("back, 01:30 comes twice", "30 1 * * *", NEW_YORK, "2026-10-31T12:00", 2),
    ("back, 02:30 comes twice", "30 2 * * *", ZONE, "2026-10-24T12:00", 2),
    ("back, each hour", "0 * * * *", ZONE, "2026-10-25T01:30", 3),
    ("forward, there is no 02:30", "30 2 * * *", ZONE, "2026-03-28T12:00", 2),
    ("forward, there is neither 02:00 nor 02:30", "0,30 2 * * *", ZONE, "2026-03-29T01:00", 2),
    ("forward, each half hour", "*/30 * * * *", ZONE, "2026-03-29T01:15", 3),
    ("a leap day", "0 8 29 2 *", ZONE, "2026-01-01T00:00", 2),
    ("a day of the month or of the week", "0 8 13 * fri", ZONE, "2026-11-01T00:00", 3),
)
HEADINGS = ("clocks go", "schedule, zone", "hermes_exec", "croniter 7", f"hermes-agent {PEERS['hermes-agent']}")


def find_ours(schedule: str, zone: str, after: str, count: int) -> list[str]:
    slots = parse_schedule(schedule, zone, 0).slots(moment(after, zone))
    return [format_moment(slot, zone) for slot in itertools.islice(slots, count)]


def find_theirs(schedule: str, zone: str, after: str, count: int) -> list[str]:
    found = croniter(schedule, datetime.fromisoformat(after).replace(tzinfo=ZoneInfo(zone)))
    return [format_moment(found.get_next(float), zone) for _ in range(count)]


def find_peers() -> list[list[str]]:
    """The slots of hermes-agent for each case."""
    with tempfile.TemporaryDirectory() as home:
        peer = Peer("hermes-agent", home, "cron", HERMES_HOME=f"{home}/hermes")
        try:
            return [json.loads(peer.ask(json.dumps(case[1:]), "due ")) for case in CASES]
        finally:
            peer.close()


def shorten(slots: list[str]) -> str:
    """The slots in one cell; without the year, if it is that of all of them, and without seconds."""
    begin = 5 if len({slot[:4] for slot in slots}) == 1 else 0
    return "<br>".join(f"{slot[begin:10]} {slot[11:16]}{slot[-6:]}" for slot in slots)


def render(peers: list[str]) -> str:
    rows = [HEADINGS, tuple("---" for _ in HEADINGS)]
    for (title, schedule, zone, after, count), theirs in zip(CASES, peers, strict=True):
        case = (schedule, zone, after, count)
        rows.append((title, f"`{schedule}`, {zone}", shorten(find_ours(*case)), shorten(find_theirs(*case)), theirs))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def split(text: str) -> tuple[str, str, str]:
    before, _, rest = text.partition("<!-- schedules -->\n")
    table, _, after = rest.partition("<!-- end of schedules -->")
    return before, table.strip(), after


def test_the_table_of_the_documentation_shows_what_is_due() -> None:
    _, table, _ = split(DOCS.read_text())
    peers = [line.rstrip(" |").rpartition(" | ")[2] for line in table.splitlines()[2:]]
    assert table == render(peers), f"renew it: python {Path(__file__).name} --write"


@pytest.mark.soak
def test_the_table_shows_what_the_other_scheduler_computes() -> None:
    _, table, _ = split(DOCS.read_text())
    assert table == render([shorten(slots) for slots in find_peers()])


if __name__ == "__main__" and "--write" in sys.argv:
    before, _, after = split(DOCS.read_text())
    table = render([shorten(slots) for slots in find_peers()])
    DOCS.write_text(f"{before}<!-- schedules -->\n{table}\n<!-- end of schedules -->{after}")
