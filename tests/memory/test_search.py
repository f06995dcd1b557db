"""Search: parts of identifiers, scripts without spaces, dates, places, notes, old files and damaged ones."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import UsageError
from hermes_exec_agent.frontends.chat.search_options import parse_date, parse_search
from hermes_exec_agent.memory.notes import STREAM
from hermes_exec_agent.runtime.events import EventLog, SearchFilter

if TYPE_CHECKING:
    from pathlib import Path

DAY = 86400.0


def found(log: EventLog, words: str, **fields: Any) -> list[str]:
    return [f"{each.conversation}#{each.number}" for each in log.search(words, 20, SearchFilter(**fields))]


def begin(log: EventLog, conversation: str, *texts: str, target: str = "local", parent: str = "") -> None:
    log.append(conversation, "started", {"target": target, "model": "m", "parent": parent, "system": ""})
    for text in texts:
        log.append(conversation, "user", {"content": text})


def write_note(log: EventLog, conversation: str, text: str, upto: int = 2, last: float = 0.0) -> None:
    sentences = [{"part": "asked", "text": text, "events": [2]}]
    data = {
        "conversation": conversation,
        "upto": upto,
        "begun": 0,
        "last": last,
        "sentences": sentences,
        "how": "model",
    }
    log.append(STREAM, "note", data)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("def forget_user_by_id(user): ...", "get_user_by"),
        ("the class HttpRequestParser fails", "RequestPars"),
        ("see /etc/nginx/sites-enabled", "sites-ena"),
        ("error E11000 in mongod", "1100"),
        ("データベースの移行手順書を作成", "移行手順"),
        ("請把資料庫備份到雲端", "備份"),
        ("데이터베이스마이그레이션을 실행", "마이그레이션"),
        ("we met on 2026-03-14 in Turin", "2026-03-14"),
    ],
)
def test_parts_of_identifiers_and_of_words_without_spaces_are_found(log: EventLog, text: str, query: str) -> None:
    begin(log, "a", "something else, with a user and a request", text)
    assert found(log, query) == ["a#3"]


def test_whole_words_come_before_parts_and_parts_before_some_of_the_words(log: EventLog) -> None:
    begin(log, "a", "the api alone", "forget_user in apis_old", "get_user of the api", "nothing")
    assert found(log, "get_user api") == ["a#4", "a#3", "a#2"]


def test_a_common_word_does_not_bring_the_others(log: EventLog) -> None:
    begin(log, "a", *[f"what is the state of {name}" for name in ("disk", "memory", "network")])
    assert found(log, "what is the state of the network?")[0] == "a#4"
    assert found(log, "what is the zebra?") == []


def test_a_question_without_spaces_is_found_by_the_pairs_of_its_letters(log: EventLog) -> None:
    begin(log, "a", *["今日の天気は晴れです"] * 30, "バックアップは金曜日の夜に実行します", "배포는 금요일에 합니다")
    assert found(log, "バックアップはいつですか")[0] == "a#32"
    assert found(log, "금요일에배포")[0] == "a#33"
    assert "金曜日の夜" in log.search("次回金曜日", 1)[0].snippet
    assert found(log, "猫犬鳥") == []


def test_pronouns_of_a_question_do_not_decide(log: EventLog) -> None:
    begin(log, "a", "she would ask him about some of her own", "the router", *["nothing"] * 20)
    assert found(log, "could she tell him about some router") == ["a#3"]


def test_the_time_of_an_event_decides_and_not_its_place_in_the_log(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock goes back between two events."""
    noon = parse_date("2026-03-14 12:00")
    for name, at in (("late", noon + DAY), ("early", noon - DAY), ("middle", noon)):
        monkeypatch.setattr(time, "time", lambda at=at: at)
        begin(log, name, "the same words")
    monkeypatch.undo()
    day = {"since": parse_date("2026-03-14"), "until": parse_date("2026-03-14", is_end=True)}
    assert found(log, "same words", **day) == ["middle#2"]
    assert found(log, "same words", until=parse_date("2026-03-14")) == ["early#2"]
    assert found(log, "same words", since=parse_date("2026-03-15")) == ["late#2"]
    assert found(log, "same words", order="oldest") == ["early#2", "middle#2", "late#2"]
    assert found(log, "same words", since=parse_date("2027-01-01")) == []


def test_places_conversations_and_targets_narrow_a_search(log: EventLog) -> None:
    begin(log, "20260101-a", "deploy it")
    log.append("20260101-a", "result", {"id": "1", "name": "terminal", "content": "deploy done"})
    begin(log, "20260102-b", "deploy that", target="ssh://box")
    begin(log, "20260103-c", "deploy this", parent="20260102-b")
    write_note(log, "20260101-a", "Deploy the service.", last=5 * DAY)
    lines = {
        "deploy --in notes": ["20260101-a#2"],
        "deploy --in results": ["20260101-a#3"],
        "deploy --in messages --in 20260101": ["20260101-a#2"],
        "deploy --in ssh://box": ["20260102-b#2"],
        "deploy --in=notes --since 1970-01-10": [],
        "'deploy that' --in messages --in last": ["20260102-b#2"],
    }
    for line, expected in lines.items():
        text, wanted = parse_search(log, line)
        assert [f"{each.conversation}#{each.number}" for each in log.search(text, 20, wanted)] == expected, line
    assert "20260103-c#2" not in found(log, "deploy", delegated=False)
    assert "20260101-a#2" not in found(log, "deploy", without="20260101-a")


@pytest.mark.parametrize(
    "line",
    ["x --since soon", "x --until 2026-13-01", "x --in 2099", "x --since", "x --in no", "x --in last --in 2026"],
)
def test_options_that_are_wrong_are_refused_in_one_line(log: EventLog, line: str) -> None:
    begin(log, "20260101-a", "x")
    with pytest.raises(UsageError):
        parse_search(log, line)


def test_a_note_is_found_by_its_latest_version_alone(log: EventLog) -> None:
    begin(log, "a", "hello")
    write_note(log, "a", "Prefers the blue theme.")
    write_note(log, "a", "Prefers the green theme.", upto=4)
    assert found(log, "blue theme", scopes=frozenset({"notes"})) == ["a#4"]
    assert found(log, "blue", scopes=frozenset({"notes"})) == []


_OLD = """
PRAGMA application_id = 1752712534; PRAGMA user_version = 1;
CREATE TABLE events (seq INTEGER PRIMARY KEY, conversation TEXT NOT NULL, number INTEGER NOT NULL CHECK (number > 0),
    at REAL NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL, UNIQUE (conversation, number)) STRICT;
CREATE INDEX events_by_kind ON events (conversation, kind, number);
CREATE TRIGGER nothing_changes BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;
CREATE TRIGGER nothing_goes BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are never removed'); END;
CREATE VIRTUAL TABLE words USING fts5(text, content='', tokenize="porter unicode61 remove_diacritics 2");
"""


def write_old(path: Path, count: int) -> None:
    """Write a log as the version before the one with parts of words did."""
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        base.executescript(f"{_OLD}BEGIN;")
        for number in range(1, count + 1):
            text = f"forget_user_by_{number} exists"
            event = ("old", number, number, "user", f'{{"content": "{text}"}}')
            base.execute("INSERT INTO events (conversation, number, at, kind, data) VALUES (?, ?, ?, ?, ?)", event)
            base.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (number, text))
        base.execute("COMMIT")


def test_a_log_of_the_version_before_is_read_written_and_searched_completely(log: EventLog) -> None:
    write_old(log.path, 1200)
    assert found(log, "get_user_by_77 exists", until=100.0) == ["old#77"]
    assert log.append("old", "user", {"content": "forget_user_by_me"}, after=1200).number == 1201
    assert found(log, "get_user_by_me") == ["old#1201"]
    assert found(log, "get_user_by_1200") == ["old#1200"]


def test_a_log_that_cannot_be_written_is_searched_as_it_is(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    write_old(log.path, 3)
    log.path.chmod(0o400)
    with closing(sqlite3.connect(f"{log.path.as_uri()}?mode=ro", uri=True)) as base:

        def connect(path: Path, *, make: bool) -> sqlite3.Connection:
            return base

        monkeypatch.setattr("hermes_exec_agent.runtime.events.storage.connect", connect)
        assert found(log, "forget_user_by_2") == ["old#2"]


DAMAGES = {
    "the data of a table": "UPDATE words_data SET block = x'00112233' WHERE id > 10",
    "all its data": "DELETE FROM fragments_data",
    "a table below it": "DROP TABLE words_data",
    "another table below it": "DROP TABLE note_words_idx",
    "its sizes": "DELETE FROM words_docsize",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("first", ["search", "append"])
def test_a_damaged_index_is_built_again_from_the_events(log: EventLog, damage: str, first: str) -> None:
    begin(log, "a", *[f"the needle_{number} of many" for number in range(50)])
    write_note(log, "a", "Looks for a needle.")
    log.close()
    with closing(sqlite3.connect(log.path, isolation_level=None)) as base:
        base.execute(damage)
    if first == "append":
        log.append("a", "user", {"content": "needle_last"})
    assert found(log, "needle_42 many") == ["a#44"]
    assert found(log, "eedle_42") == ["a#44"]
    assert found(log, "looks", scopes=frozenset({"notes"})) == ["a#2"]
    log.append("a", "user", {"content": "needle_new"})
    assert found(log, "needle_new")[0].startswith("a#5")
    assert [path.name for path in log.path.parent.iterdir() if "damaged" in path.name] == []


def test_the_index_is_built_again_from_events_alone(log: EventLog) -> None:
    begin(log, "a", "forget_user_by_id")
    write_note(log, "a", "A note.")
    with closing(sqlite3.connect(log.path, isolation_level=None)) as base:
        base.execute("DELETE FROM latest_notes")
        base.execute("INSERT INTO words (words) VALUES ('delete-all')")
    assert found(log, "forget_user_by_id", scopes=frozenset({"notes"})) == []
    assert log.rebuild_index() == 4 * 3
    assert found(log, "get_user_by") == ["a#2"]
    assert found(log, "note") == ["a#2"]


def test_a_damaged_file_is_kept_aside_and_what_can_be_read_is_carried_over(
    log: EventLog, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(300):
        begin(log, f"c{number:03}", f"request {number} " + "padding " * 400)
    log.close()
    size = log.path.stat().st_size
    with log.path.open("r+b") as file:
        file.seek(size // 2)
        file.write(b"\xff" * 40_000)
    other = EventLog(log.path)
    kept = [each for each in range(300) if log.events(f"c{each:03}")]
    assert 100 < len(kept) < 300
    (line,) = [record.getMessage() for record in caplog.records if "was damaged" in record.getMessage()]
    assert f"{log.path.name}.damaged" in line
    assert log.path.with_name(f"{log.path.name}.damaged").stat().st_size == size
    assert other.append("new", "user", {"content": "goes on"}).number == 1
    assert log.events("new")[0].data["content"] == "goes on"
    assert found(log, f"request {kept[0]}")[0] == f"c{kept[0]:03}#2"


def test_a_file_of_the_own_name_that_is_no_database_is_kept_aside_and_one_of_another_name_is_not(
    tmp_path: Path, log: EventLog
) -> None:
    log.path.write_bytes(b"\0" * 5000)
    assert log.append("a", "user", {"content": "x"}).number == 1
    assert log.path.with_name(f"{log.path.name}.damaged").read_bytes() == b"\0" * 5000
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(b"photo" * 1000)
    with pytest.raises(Exception, match="not a database"):
        EventLog(photo).events("a")
    assert photo.read_bytes() == b"photo" * 1000
