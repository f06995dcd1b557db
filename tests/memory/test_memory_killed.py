"""Programs that write the journal, or index into long-term memory, are killed at random moments, one after another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec_agent.memory.longterm.exact import ExactStore
from hermes_exec_agent.memory.longterm.indexer import Indexer
from hermes_exec_agent.memory.notes import STREAM
from tests.memory.conftest import add
from tests.rigs.meanings import WordEmbedder

if TYPE_CHECKING:
    from hermes_exec_agent.memory.journal import Journal
    from hermes_exec_agent.runtime.events import EventLog

pytestmark = pytest.mark.parametrize(
    "kills", [20, pytest.param(200, id="full", marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
)
_PROGRAM = """
import os, random, signal, sys, time
from pathlib import Path
from hermes_exec_agent.memory import screening
from hermes_exec_agent.memory.entries import Entry
from hermes_exec_agent.memory.journal import Journal
from hermes_exec_agent.runtime.events import EventLog
from tests.rigs.meanings import WordEmbedder, add_note, open_indexer

folder, kind, kills = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

def work(seed):
    log, done = EventLog(folder / "conversations.sqlite"), open(folder / "done", "a")
    journal = Journal(folder / "memory", log, {"memory": 2200})
    if kind == "index":
        indexer = open_indexer(str(folder / "longterm.sqlite"), str(log.path), WordEmbedder(), prepare=True)
    for number in range(1_000_000):
        if kind == "index":
            add_note(log, f"{seed}-{number}", f"note {seed} {number}")
            indexer.catch_up()
        else:
            new = Entry(f"{seed} {number}")
            journal.write("memory", lambda entries: [*entries[-9:], new], who="agent", why="")
        print(seed, number, file=done, flush=True)

screening.find_withholding("imports what it needs")
draw = random.Random(18)
for seed in range(kills):
    child = os.fork()
    if not child:
        work(seed)
    time.sleep(draw.uniform(0.02, 0.25))  # the moment is random, nothing is awaited
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
"""


def run_killed(folder: Path, kind: str, kills: int) -> list[str]:
    """Run the program, and return each write that it completed, as ``SEED NUMBER``."""
    environ = {**os.environ, "PYTHONPATH": ":".join([str(Path(__file__).parents[2]), *sys.path])}
    subprocess.run([sys.executable, "-c", _PROGRAM, str(folder), kind, str(kills)], env=environ, check=True)
    done = (folder / "done").read_text().splitlines()
    assert len(done) > kills
    return done


def test_no_entry_of_the_journal_is_lost_or_doubled(
    tmp_path: Path, log: EventLog, journal: Journal, kills: int
) -> None:
    done = run_killed(tmp_path, "journal", kills)
    add(journal, "after all kills")
    history = journal.history()
    written = [event.data["entries"]["memory"][-1]["text"] for event in history]
    assert len(set(written)) == len(written)
    assert set(done) <= set(written)
    assert len(written) - 1 - len(done) <= kills  # a kill between a write and its report
    assert {event.data["who"] for event in history[:-1]} == {"agent"}  # no file that was half written is an edit
    assert [each.text for each in journal.read("memory")] == [
        each["text"] for each in history[-1].data["entries"]["memory"]
    ]
    assert journal.rebuild() == []
    assert not list(journal.folder.glob("*.pending"))


def test_no_memory_of_the_index_is_lost_or_doubled(tmp_path: Path, log: EventLog, journal: Journal, kills: int) -> None:
    done = run_killed(tmp_path, "index", kills)
    store, embedder = ExactStore(tmp_path / "longterm.sqlite"), WordEmbedder()
    store.prepare(embedder.name, embedder.dimension)
    indexer = Indexer(log, store, embedder, read_skills=list)
    before = store.texts(log.identity(), "episodic")
    assert {f"note:{each.replace(' ', '-')}" for each in done} <= before.keys()
    indexer.catch_up()  # those of kills between the record and the index
    assert indexer.catch_up() == 0
    notes = log.events(STREAM)
    expected = {f"note:{each.data['conversation']}": f"done: {each.data['sentences'][0]['text']}" for each in notes}
    assert store.texts(log.identity(), "episodic") == expected
    assert store.count(log.identity())["episodic"] == len(expected) == len(notes)
    store.close()
