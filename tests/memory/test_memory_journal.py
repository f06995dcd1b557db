"""The two files of the journal: races, edits by a person, kills, full disks, and the rebuild from events."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import HermesError
from hermes_exec_agent.memory.entries import (
    Ambiguous,
    Entry,
    Operation,
    apply_operations,
    join_entries,
    merge_edit,
    split_entries,
)
from hermes_exec_agent.memory.journal import STREAM, Damaged, Journal
from hermes_exec_agent.memory.prompt import measure, render, show_entry
from tests.memory.conftest import add

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.runtime.events import EventLog

WRITER = """
import sys
from pathlib import Path
from hermes_exec_agent.memory.entries import Entry
from hermes_exec_agent.memory.journal import Journal
from hermes_exec_agent.runtime.events import EventLog
folder, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
journal = Journal(folder / "memory", EventLog(folder / "conversations.sqlite"), {"memory": 100_000})
print("ready", flush=True)
for number in range(count):
    journal.write("memory", lambda entries: [*entries, Entry(f"{name} {number}")], who="agent", why="")
    if count > 1000:
        print(number, flush=True)
"""


def texts(journal: Journal) -> list[str]:
    return [each.text for each in journal.read("memory")]


def start_writer(folder: Path, name: str, count: int) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", WRITER, str(folder), name, str(count)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def test_two_programs_with_two_hundred_writes_each_lose_and_double_nothing(tmp_path: Path, journal: Journal) -> None:
    writers = [start_writer(tmp_path, name, 200) for name in ("a", "b")]
    assert [each.wait(timeout=110) for each in writers] == [0, 0]
    found = texts(journal)
    assert sorted(found) == sorted(f"{name} {number}" for name in ("a", "b") for number in range(200))
    assert len(journal.history()) == 400


def test_after_kills_the_files_are_as_the_events_have_them(tmp_path: Path, journal: Journal) -> None:
    written = 0
    for round_number in range(8):
        writer = start_writer(tmp_path, f"r{round_number}", 100_000)
        assert writer.stdout is not None
        for _ in range(3 + round_number):
            writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        add(journal, f"after {round_number}")
        found = texts(journal)
        assert len(set(found)) == len(found) > written
        assert {each.data["who"] for each in journal.history() if each.data["why"] != "test"} == {"agent"}
        written = len(found)
    assert journal.rebuild() == []


def test_an_edit_by_a_person_is_recorded_and_entries_that_it_lacks_are_kept_beside(journal: Journal) -> None:
    add(journal, "one", "two", "three")
    path = journal.path("memory")
    path.write_text("one\n§\nmy own words\n")  # an editor that had an older copy
    add(journal, "four")
    assert texts(journal) == ["one", "my own words", "four"]
    assert split_entries(path.with_name("MEMORY.md.other").read_text()) == ["two", "three"]
    assert [each.data["why"] for each in journal.history()] == ["test", "the file was edited", "test"]
    assert [each.text for each in journal.entries_at(1)[1]] == ["one", "two", "three"]


def test_a_byte_order_mark_and_line_ends_of_an_editor_are_no_part_of_an_entry(journal: Journal) -> None:
    path = journal.path("memory")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\xef\xbb\xbfone\r\n\xc2\xa7\r\ntwo\r\n")
    add(journal, "three")
    assert texts(journal) == ["one", "two", "three"]
    assert path.read_text("utf-8") == "one\n§\ntwo\n§\nthree\n"


def test_a_save_during_a_change_is_not_lost(journal: Journal) -> None:
    add(journal, "one")

    def change(entries: list[Entry]) -> list[Entry]:
        if all(each.text != "saved meanwhile" for each in entries):
            journal.path("memory").write_text("one\n§\nsaved meanwhile\n")
        return [*entries, Entry("two")]

    journal.write("memory", change, who="agent", why="")
    assert texts(journal) == ["one", "saved meanwhile", "two"]
    assert journal.rebuild() == []


@pytest.mark.parametrize(
    ("edited", "other", "merged", "aside"),
    [
        ("a b", "a b c", "a b c", ""),
        ("a", "a b c", "a c", ""),
        ("a b x", "a", "a x", ""),
        ("a X", "a Y", "a X", "Y"),
    ],
)
def test_an_edit_is_merged_by_entries_and_the_person_wins(edited: str, other: str, merged: str, aside: str) -> None:
    assert merge_edit(["a", "b"], edited.split(), other.split()) == (merged.split(), aside.split())


def test_an_old_text_of_several_entries_changes_nothing_and_names_them(journal: Journal) -> None:
    add(journal, "tests run with make", "docs build with make")
    with pytest.raises(Ambiguous, match='"tests run with make", "docs build with make"'):
        apply_operations(journal.read("memory"), [Operation("remove", old_text="with make")])


def test_files_are_rebuilt_from_the_events_and_a_damaged_one_is_kept(journal: Journal) -> None:
    add(journal, "one", "two")
    add(journal, "about me", target="user")
    path = journal.path("memory")
    content, damaged = path.read_bytes(), b"\xff\xfe broken"
    path.write_bytes(damaged)
    journal.path("user").unlink()
    with pytest.raises(Damaged, match=r"no UTF-8 text. Try: fix it, or hermes-exec memory rebuild"):
        add(journal, "three")
    assert path.read_bytes() == damaged
    journal.rebuild()
    assert path.read_bytes() == content
    assert path.with_name("MEMORY.md.bak").read_bytes() == damaged
    assert journal.path("user").read_text() == "about me\n"


def test_reading_creates_nothing(tmp_path: Path, journal: Journal) -> None:
    assert journal.read("memory") == []
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_line_and_changes_nothing(tmp_path: Path, journal: Journal) -> None:
    add(journal, "one")
    limited = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2, 2))
from hermes_exec.errors import HermesError
try:
    exec(open(0).read())
except HermesError as error:
    print(error)
"""
    argv = [sys.executable, "-c", limited, str(tmp_path), "a", "1"]
    done = subprocess.run(argv, input=WRITER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2
    assert "MEMORY.md: File too large" in done.stdout
    assert texts(journal) == ["one"]
    assert len(journal.history()) == 1


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path, log: EventLog) -> None:
    (tmp_path / "file").write_text("")
    journal = Journal(tmp_path / "file" / "memory", log, {"memory": 2200})
    with pytest.raises(HermesError, match="MEMORY.md: Not a directory"):
        add(journal, "one")
    assert log.events(STREAM) == []


def test_a_prompt_never_has_more_than_the_limit_headings_too() -> None:
    entries = [Entry(f'entry {number} "quoted" \\ ' + "x" * number) for number in range(60)]
    for limit in (500, 1375, 2200):
        text = render("memory", entries, limit)
        assert len(text) <= limit
        assert text.endswith("more do not fit)")
    assert measure("memory", entries[:3]) == len(render("memory", entries[:3], 2200))


def test_entries_survive_the_file() -> None:
    entries = [Entry("# A heading\n- a list"), Entry("with § inside"), Entry('quotes " and \\')]
    assert split_entries(join_entries(entries)) == [each.text for each in entries]
    assert all("\n" not in show_entry(each) for each in entries)
