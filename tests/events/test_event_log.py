"""The log of conversations: appended to by several programs, killed at any moment, listed and searched."""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_exec.config.secrets import Secret
from hermes_exec.errors import ConfigError, HermesError, UsageError
from hermes_exec.observe.redact import Redactor
from hermes_exec_agent.database_files import is_shared
from hermes_exec_agent.runtime.events import Conflict, EventLog, new_id
from hermes_exec_agent.runtime.events.storage import conversations_file

MOUNT = "36 35 0:30 / {} rw,relatime shared:1 - {} some-host:/export rw\n"
ROOT_MOUNT = "1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/sda rw\n"


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    return EventLog(tmp_path / "state" / "conversations.sqlite")


def said(log: EventLog, conversation: str, *texts: str) -> None:
    for text in texts:
        log.append(conversation, "user", {"content": text})


def test_each_conversation_counts_its_own_events(log: EventLog) -> None:
    said(log, "a", "one", "two")
    said(log, "b", "three")
    said(log, "a", "four")
    assert [(event.number, event.data["content"]) for event in log.events("a")] == [(1, "one"), (2, "two"), (3, "four")]
    assert (log.last("a"), log.last("b"), log.last("c")) == (3, 1, 0)
    assert [event.number for event in log.events("a", since=2)] == [3]


def test_a_disk_that_is_full_is_told_of_and_what_follows_is_recorded(log: EventLog) -> None:
    """SQLite itself ends a transaction that it cannot write."""
    said(log, "a", "one")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(HermesError, match="disk"):
            said(log, "a", "two " * (2 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    said(log, "a", "three")
    assert [event.data["content"] for event in log.events("a")] == ["one", "three"]


def test_reading_makes_no_file(log: EventLog) -> None:
    assert (log.events("a"), log.conversations(), log.search("x"), log.last("a")) == ([], [], [], 0)
    assert not log.path.exists()


def test_the_file_is_the_users_alone(log: EventLog) -> None:
    said(log, "a", "one")
    for path in log.path.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    assert stat.S_IMODE(log.path.parent.stat().st_mode) == 0o700


def test_nothing_can_be_changed_or_removed(log: EventLog) -> None:
    said(log, "a", "one")
    base = sqlite3.connect(log.path)
    for statement in ("UPDATE events SET data = '{}'", "DELETE FROM events"):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            base.execute(statement)
    base.close()


def test_whoever_is_behind_is_told(log: EventLog) -> None:
    said(log, "a", "one", "two")
    with pytest.raises(Conflict, match="another program"):
        log.append("a", "user", {"content": "three"}, after=1)
    assert log.append("a", "user", {"content": "three"}, after=2).number == 3


def test_many_writers_lose_nothing(log: EventLog) -> None:
    threads = [threading.Thread(target=said, args=(EventLog(log.path), "a", *"0123456789")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [event.number for event in log.events("a")] == list(range(1, 41))


WRITER = """
import sys
from pathlib import Path
from hermes_exec_agent.runtime.events import EventLog
log = EventLog(Path(sys.argv[1]))
for number in range(1_000_000):
    log.append("a", "user", {"content": f"event {number}"})
    print(number, flush=True)
"""


def test_what_was_confirmed_survives_a_kill_and_the_log_goes_on(log: EventLog) -> None:
    environ = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    writer = subprocess.Popen([sys.executable, "-c", WRITER, log.path], stdout=subprocess.PIPE, text=True, env=environ)
    assert writer.stdout
    confirmed = [int(writer.stdout.readline()) for _ in range(20)][-1]
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    events = log.events("a")
    assert [event.data["content"] for event in events] == [f"event {number}" for number in range(len(events))]
    assert len(events) > confirmed
    assert log.append("a", "user", {"content": "after"}).number == len(events) + 1
    assert len(log.search("event", limit=10_000)) == len(events)


@given(
    st.text() | st.just("half a pair: \ud83d"),
    st.dictionaries(st.text(), st.integers(-(2**53), 2**53) | st.text() | st.none()),
)
def test_what_is_read_is_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, content: str, more: dict[str, object]
) -> None:
    with EventLog(tmp_path_factory.mktemp("log") / "x.sqlite") as log:
        log.append("a", "user", {**more, "content": content})
        assert log.events("a")[0].data == {**more, "content": content}


def test_secrets_are_not_kept(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "x.sqlite", redactor=Redactor([Secret("KEY", 'sk-"quoted"-secret')]))
    event = log.append("a", "result", {"content": 'the key is sk-"quoted"-secret.'})
    assert event.data["content"] == "the key is [secret KEY]."
    log.close()
    assert all(b"quoted" not in path.read_bytes() for path in tmp_path.iterdir())


def test_conversations_are_listed_latest_first_and_by_pages(log: EventLog) -> None:
    facts = {"target": "ssh://box", "model": "m", "scripted": True, "parent": "p", "system": "…"}
    for name in ("a", "b", "c"):
        log.append(name, "started", facts)
        said(log, name, f"  question of {name}\nand more", "again")
    said(log, "a", "and again")
    listed = log.conversations()
    assert [summary.id for summary in listed] == ["a", "c", "b"]
    first = listed[0]
    assert (first.title, first.turns, first.events) == ("question of a", 3, 4)
    assert (first.target, first.model, first.scripted, first.parent) == ("ssh://box", "m", True, "p")
    assert first.started <= first.last
    assert [summary.id for summary in log.conversations(1, before="a")] == ["c"]


def test_a_conversation_is_found_by_the_beginning_of_its_id(log: EventLog) -> None:
    said(log, "20260101-000000-aa", "x")
    said(log, "20260101-000000-ab", "y")
    said(log, "20260102", "z")
    assert log.find("20260102") == "20260102"
    assert log.find("20260101-000000-ab") == "20260101-000000-ab"
    for beginning, what in (("20260101", "several"), ("3", "no conversation"), ("2026%", "no conversation")):
        with pytest.raises(UsageError, match=what):
            log.find(beginning)


def test_ids_sort_by_time_and_differ() -> None:
    made = [new_id() for _ in range(100)]
    assert len(set(made)) == 100


def found(log: EventLog, words: str, limit: int = 20) -> list[int]:
    return [each.number for each in log.search(words, limit)]


def test_words_are_found_in_their_forms_and_all_words_come_first(log: EventLog) -> None:
    said(log, "a", "the build failed", "building the tests", "the weather", "build and test it")
    assert found(log, "builds") == [1, 2, 4] or set(found(log, "builds")) == {1, 2, 4}
    assert found(log, "what about the test of the build?")[0] in (2, 4)
    assert found(log, "nothing of this") == []


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("请生成销售报告", "销售"),
        ("売上レポートを作成", "レポート"),
        ("보고서를 만들어", "보고"),
        ("look at read_file in utils.py", "utils.py"),
        ("look at read_file in utils.py", "read_file"),
        ("Füße und Straße", "fusse"),
    ],
)
def test_words_of_any_script_are_found(log: EventLog, text: str, query: str) -> None:
    said(log, "a", "something else entirely", text)
    expected = [] if query == "fusse" else [2]
    assert found(log, query) == expected


@pytest.mark.parametrize(
    "query", ['"', "NEAR(a b)", "a OR", "* ^ :", "x:y", "'; DROP TABLE events; --", "", "   ", "\0", "NOT"]
)
def test_no_query_is_taken_for_a_program(log: EventLog, query: str) -> None:
    said(log, "a", "some words")
    assert log.search(query) == []
    assert log.last("a") == 1


def test_what_tools_showed_and_what_was_called_is_found(log: EventLog) -> None:
    log.append(
        "a",
        "assistant",
        {"content": "", "tool_calls": [{"name": "terminal", "arguments": '{"command": "nvidia-smi"}'}]},
    )
    log.append("a", "result", {"content": "Tesla V100 " + "x " * 10_000 + "beyond"})
    assert found(log, "nvidia") == [1]
    assert found(log, "tesla") == [2]
    assert found(log, "beyond") == []


def test_a_snippet_is_one_line_that_is_safe_to_print(log: EventLog) -> None:
    said(log, "a", "before\n\x1b[31mthe needle\x07 is here\n" + "after " * 100)
    (hit,) = log.search("needle")
    assert "needle" in hit.snippet
    assert hit.snippet.isprintable()
    assert hit.snippet.endswith("…")


def test_an_export_is_the_record_line_by_line(log: EventLog) -> None:
    said(log, "a", "ä\nb")
    (line,) = log.export("a")
    assert json.loads(line)["data"] == {"content": "ä\nb"}
    assert json.loads(line)["kind"] == "user"


def test_another_file_is_not_touched(tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    base = sqlite3.connect(other)
    base.execute("CREATE TABLE mine (x)")
    base.commit()
    base.close()
    before = other.read_bytes()
    with pytest.raises(HermesError, match="not a log of conversations"):
        EventLog(other).append("a", "user", {})
    assert other.read_bytes() == before


def test_garbage_is_refused_in_one_line(tmp_path: Path) -> None:
    garbage = tmp_path / "x.sqlite"
    garbage.write_bytes(b"garbage" * 1000)
    with pytest.raises(HermesError, match="not a database"):
        EventLog(garbage).events("a")


@dataclass
class Shared:
    """What is found out about a folder."""

    answer: bool

    def __call__(self, folder: Path) -> bool:
        return self.answer


def journal(path: Path) -> str:
    with closing(sqlite3.connect(path)) as base:
        return str(base.execute("PRAGMA journal_mode").fetchone()[0])


def test_the_journal_is_one_that_the_file_system_can_keep(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes_exec_agent.database_files.is_shared", Shared(answer=False))
    said(log, "a", "one")
    log.close()
    assert journal(log.path) == "wal"
    # The same file, moved to a file system that other machines have too.
    monkeypatch.setattr("hermes_exec_agent.database_files.is_shared", Shared(answer=True))
    said(log, "a", "two")
    log.close()
    assert journal(log.path) == "delete"
    assert [path.name for path in log.path.parent.iterdir()] == [log.path.name]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("nfs4", True), ("nfs", True), ("lustre", True), ("beegfs", True), ("gpfs", True), ("cifs", True), ("9p", True),
     ("virtiofs", True), ("fuse.sshfs", True), ("ext4", False), ("xfs", False), ("btrfs", False), ("tmpfs", False),
     ("overlay", False)],
)  # fmt: skip
def test_file_systems_of_other_machines_are_known(tmp_path: Path, kind: str, expected: object) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(ROOT_MOUNT + MOUNT.format(tmp_path, kind))
    assert is_shared(tmp_path, mounts) is expected


def test_what_cannot_be_told_counts_as_shared(tmp_path: Path) -> None:
    assert is_shared(tmp_path, tmp_path / "no such file")


def test_the_file_can_be_chosen() -> None:
    assert conversations_file({"HERMES_EXEC_CONVERSATIONS": "/a/b.sqlite"}) == Path("/a/b.sqlite")
    assert conversations_file({"XDG_STATE_HOME": "/s"}) == Path("/s/hermes_exec/conversations.sqlite")
    with pytest.raises(ConfigError, match="absolute"):
        conversations_file({"HERMES_EXEC_CONVERSATIONS": "b.sqlite"})
