"""A program may open the log twice: closing one connection takes nothing from the other."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from hermes_exec_agent.runtime.events import EventLog

if TYPE_CHECKING:
    from pathlib import Path

READ = (
    "import sys, pathlib, hermes_exec_agent.runtime.events as e; print(e.EventLog(pathlib.Path(sys.argv[1])).last('c'))"
)


def read_elsewhere(path: Path) -> int:
    """The last number that another program reads, which closes its connection then."""
    done = subprocess.run([sys.executable, "-c", READ, str(path)], check=True, capture_output=True, text=True)
    return int(done.stdout)


def test_events_are_seen_by_others_after_a_second_connection_of_the_program_was_closed(tmp_path: Path) -> None:
    path = tmp_path / "conversations.sqlite"
    with EventLog(path) as log:
        log.append("c", "user", {"content": "one"})
        with log.reopen() as second:
            assert second.last("c") == 1
        assert read_elsewhere(path) == 1
        log.append("c", "user", {"content": "two"})
        assert read_elsewhere(path) == 2
    assert read_elsewhere(path) == 2
