"""A log of many events: the work of each operation stays within a bound that does not depend on their number."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import UsageError
from hermes_exec_agent.memory.journal import Journal
from hermes_exec_agent.memory.note_writer import find_pending
from hermes_exec_agent.memory.notes import latest_note
from hermes_exec_agent.memory.prompt import read_prompt
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.runtime.events.search import SearchFilter
from tests.rigs.large_log import build

if TYPE_CHECKING:
    from collections.abc import Callable

_FULL = int(os.environ.get("HERMES_SOAK_EVENTS", "10_000_000"))
_MOST_STEPS = 6_000_000
"""Steps of SQLite's machine that one operation may take."""
_REBUILD_S = 20.0
_MOST_MB = 300
_REBUILD = """
import sys
from pathlib import Path
from hermes_exec_agent.runtime.events import EventLog
EventLog(Path(sys.argv[1])).rebuild_index()
"""


@pytest.mark.parametrize(
    "events", [30_000, pytest.param(_FULL, id="full", marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
)
def test_no_operation_depends_on_the_number_of_events(
    tmp_path: Path, events: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if events < 1_000_000:  # so that a small log has more than each bound, too
        for name in ("_RANKED", "_MOST_READ", "_MOST_TIMED"):
            monkeypatch.setattr(f"hermes_exec_agent.runtime.events.search.{name}", 500)
    path = tmp_path / "conversations.sqlite"
    first = build(path, events)
    log = EventLog(path)
    last = log.last_activity()
    assert last is not None
    journal = Journal(tmp_path / "memory", log, {"memory": 2200, "user": 1375})
    base = log._open(make=False)  # pyright: ignore[reportPrivateUsage]  its steps are counted
    steps = [0]

    def count() -> int:
        steps[0] += 1000
        return 0

    def search(text: str, **wanted: object) -> object:
        return log.search(text, 20, SearchFilter(**wanted))  # type: ignore[arg-type]  # fields by their names

    def find_several() -> object:
        with contextlib.suppress(UsageError):
            return log.find("2")
        return True

    name = log.conversations(1)[0].id
    operations: dict[str, Callable[[], object]] = {
        "a word of each message": lambda: search("server"),
        "a rare word": lambda: search("w7919"),
        "a question": lambda: search("what did we say about the server w7919 and w104729"),
        "a part of words": lambda: search("erver"),
        "notes": lambda: search("server", scopes=frozenset({"notes"})),
        "since long ago": lambda: search("server", since=first + (last - first) / 3),
        "until long ago": lambda: search("server", until=first + (last - first) / 3),
        "of one conversation": lambda: search("server", conversation=name),
        "its own notes": lambda: search("server", conversation="2000000000-c", scopes=frozenset({"notes"})),
        "the newest": lambda: search("server", order="newest"),
        "list of conversations": lambda: log.conversations(50),
        "next page": lambda: log.conversations(50, before=name),
        "by the beginning of an id": find_several,
        "its note": lambda: latest_note(log, "2000000000-c"),
        "start: conversations without a note": lambda: find_pending(log, newest=200) or True,
        "start: the prompt": lambda: read_prompt(journal, print),
        "record an event": lambda: log.append("3-new", "user", {"content": "server w1"}),
    }
    taken: dict[str, tuple[int, float]] = {}
    for title, operation in operations.items():
        base.set_progress_handler(count, 1000)
        steps[0], began = 0, time.monotonic()
        assert operation(), title
        taken[title] = steps[0], time.monotonic() - began
    print(*[f"{title}: {steps:,} steps, {took * 1000:.0f} ms" for title, (steps, took) in taken.items()], sep="\n")
    assert {title: steps for title, (steps, _) in taken.items() if steps > _MOST_STEPS * min(events / 1e6, 1)} == {}
    hits = [each.conversation for each in log.search("server", 20, SearchFilter(until=first + (last - first) / 3))]
    assert len(hits) == 20
    log.close()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_rebuild_of_a_large_index_takes_bounded_memory_and_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "conversations.sqlite"
    build(path, _FULL // 10)
    positions: list[tuple[str, int]] = []
    for _ in range(2):
        program = subprocess.Popen([sys.executable, "-c", _REBUILD, path])
        time.sleep(_REBUILD_S)  # the rebuild takes minutes, and is ended before
        status = Path(f"/proc/{program.pid}/status").read_text()
        program.kill()
        program.wait()
        peak = int(status.partition("VmHWM:")[2].split()[0]) // 1024
        with closing(sqlite3.connect(path)) as base:
            positions += base.execute("SELECT name, upto FROM indexing ORDER BY name DESC LIMIT 1").fetchall()
        print(f"{positions[-1]} after {_REBUILD_S:.0f} s, {peak} MB")
        assert peak < _MOST_MB
    assert positions[1] > positions[0] or positions[1][0] != positions[0][0]
    assert positions[0][1] > 0
