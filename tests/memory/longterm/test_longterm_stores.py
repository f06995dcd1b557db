"""The contract of stores of memories, on SQLite with NumPy and on PostgreSQL with pgvector."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import psycopg
import pytest

from hermes_exec.errors import HermesError
from hermes_exec_agent.memory.entries import Source
from hermes_exec_agent.memory.longterm.exact import ExactStore
from hermes_exec_agent.memory.longterm.indexer import Indexer
from hermes_exec_agent.memory.longterm.memory import KINDS, Memory, score_matches
from hermes_exec_agent.memory.longterm.postgres import PostgresStore
from hermes_exec_agent.memory.longterm.store import AnotherEmbedder, Batch, StoreUnavailable
from hermes_exec_agent.runtime.events import EventLog
from tests.memory.longterm.conftest import DAY, put, remember
from tests.rigs import postgres
from tests.rigs.bounded import wait_until
from tests.rigs.meanings import WordEmbedder, add_note, open_store

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.memory.longterm.store import MemoryStore

NOTHING = np.zeros((0, 256), dtype=np.float32)


def find(store: MemoryStore, embedder: WordEmbedder, text: str, log: str = "log") -> list[str]:
    vector = embedder.embed([text], query=True)[0]
    found = store.nearest(log, vector, KINDS, 10)
    return [each.memory.text for each in score_matches(found, now=0.0, floor=0.1, count=10)]


def test_a_store_returns_the_nearest_of_each_kind_with_their_provenance(
    store: MemoryStore, embedder: WordEmbedder
) -> None:
    store.prepare(embedder.name, embedder.dimension)
    known = Memory("semantic", "the tests run with make", "journal:1", 5.0, "person", (Source("c", 3), Source("d", 4)))
    put(store, embedder, known, remember("the cat sleeps"), remember("tests run slowly", kind="declarative"))
    vector = embedder.embed(["how do the tests run"], query=True)[0]
    found = store.nearest("log", vector, KINDS, 1)
    assert [(each.kind, each.text) for each, _ in found] == [
        ("episodic", "the cat sleeps"), ("semantic", "the tests run with make"), ("declarative", "tests run slowly"),
    ]  # fmt: skip
    assert found[1][0] == known
    assert found[1][1] == pytest.approx(3 / 5, abs=1e-6)
    assert store.count("log") == {"episodic": 1, "semantic": 1, "declarative": 1, "turn": 0}
    assert store.nearest("another log", vector, KINDS, 5) == []


def test_writes_are_idempotent_by_source_and_complete_or_nothing(store: MemoryStore, embedder: WordEmbedder) -> None:
    store.prepare(embedder.name, embedder.dimension)
    first = remember("one two", "note:a", at=10.0)
    put(store, embedder, first, remember("three four", "note:b"))
    put(store, embedder, replace(first, at=20.0))  # the same text keeps its time
    (memory, _), *_ = store.nearest("log", embedder.embed(["one two"], query=True)[0], KINDS, 1)
    assert memory.at == 10.0
    put(store, embedder, replace(first, text="five six", at=30.0))
    assert store.texts("log", "episodic") == {"note:a": "five six", "note:b": "three four"}
    assert find(store, embedder, "one two") == []
    late = Batch(0, 9, [remember("late")], embedder.embed(["late"], query=False))
    assert not store.write("log", late)
    assert store.position("log") == 3
    assert store.write("log", Batch(3, 4, [], NOTHING, {"episodic": frozenset({"note:b"})}))
    assert store.texts("log", "episodic") == {"note:b": "three four"}
    store.forget("log")
    assert not any(store.count().values())
    assert store.position("log") == 0


def test_turns_have_a_position_of_their_own_and_are_found_among_themselves(
    address: str, store: MemoryStore, embedder: WordEmbedder
) -> None:
    store.prepare(embedder.name, embedder.dimension)
    other = open_store(address)  # another program, which keeps vectors in memory
    other.prepare(embedder.name, embedder.dimension)

    def put_turns(*texts: str) -> None:
        at = store.position("log", "turns")
        turns = [remember(text, f"turn:c#{at + number}", "turn") for number, text in enumerate(texts)]
        vectors = embedder.embed(texts, query=False)
        assert store.write("log", Batch(at, at + len(turns), turns, vectors, part="turns"))

    def find_turns(text: str) -> list[str]:
        vector = embedder.embed([text], query=True)[0]
        return [each.text for each, _ in other.nearest("log", vector, ["turn"], 1)]

    put(store, embedder, remember("the red apple"))
    put_turns("the red pear", "the blue plum")
    put(store, embedder, remember("the green plum"))
    assert (store.position("log"), store.position("log", "turns")) == (2, 2)
    assert find_turns("red apple pear") == ["the red pear"]
    put_turns("a yellow quince")
    assert find_turns("yellow quince") == ["a yellow quince"]
    store.forget("log")  # a rebuild gives other rows the same numbers
    assert (store.position("log"), store.position("log", "turns")) == (0, 0)
    put(store, embedder, remember("the red apple"), remember("the green plum"))
    put_turns("a yellow quince", "the red pear", "the blue plum")
    assert find_turns("red pear") == ["the red pear"]
    assert store.count("log")["turn"] == 3
    other.close()


def test_vectors_of_another_embedder_are_refused_until_all_are_replaced(
    address: str, store: MemoryStore, embedder: WordEmbedder, log: EventLog
) -> None:
    for number in range(80):
        add_note(log, f"c{number}", f"note number{number}")
    store.prepare(embedder.name, embedder.dimension)
    Indexer(log, store, embedder, read_skills=list).catch_up()
    before = open_store(address)  # of a program that prepared it before another one recorded another embedder
    before.prepare(embedder.name, embedder.dimension)
    other = WordEmbedder("other words", 512)
    with pytest.raises(AnotherEmbedder, match="hermes-exec memory reembed"):
        store.prepare(other.name, other.dimension)

    script = """
import sys, time
from tests.rigs.meanings import WordEmbedder, open_indexer
indexer = open_indexer(*sys.argv[1:], WordEmbedder("other words", 512))
indexer.reembed(lambda done: (print(done, flush=True), time.sleep(60)))
"""
    program = subprocess.Popen(
        [sys.executable, "-c", script, address, str(log.path)], stdout=subprocess.PIPE, text=True
    )
    with program:
        assert program.stdout is not None
        assert program.stdout.readline() == "32\n"
        program.kill()
    assert store.count_stale() == 48
    with pytest.raises(AnotherEmbedder):
        put(before, embedder, remember("mixed"), log=log.identity())
    other.count = 0
    assert Indexer(log, store, other).reembed() == 48
    assert (other.count, store.count_stale()) == (48, 0)
    assert find(store, other, "note number7", log.identity())[0] == "done: note number7"


def test_age_lowers_scores_by_kind_and_never_hides_what_fits() -> None:
    ages = [0.0, 1.0, 10.0, 100.0, 1000.0]
    for kind, factor in (("episodic", 0.3679), ("semantic", 0.9048), ("declarative", 1.0)):
        found = [(remember("x", f"note:{age}", kind, at=-age * DAY), 0.9) for age in ages]  # type: ignore[arg-type]  # a kind
        matches = score_matches(found, now=0.0, floor=0.85, count=10)
        scores = {each.memory.source: each.score for each in matches}
        ordered = [scores[f"note:{age}"] for age in ages]
        assert ordered == sorted(ordered, reverse=True)
        assert scores["note:100.0"] == pytest.approx(0.9 * factor, abs=1e-4)
    future = score_matches([(remember("x", at=9 * DAY), 0.9), (remember("y"), 0.84)], now=0.0, floor=0.85, count=10)
    assert [(each.memory.text, each.score) for each in future] == [("x", 0.9)]


def test_many_programs_at_once_neither_lose_nor_double_a_row(
    address: str, store: MemoryStore, embedder: WordEmbedder, tmp_path: Path
) -> None:
    """Four programs index two logs, in each of which they also write."""
    logs = [EventLog(tmp_path / f"{name}.sqlite") for name in "ab"]
    for log in logs:
        for number in range(40):
            add_note(log, f"before{number}", f"text {number}")
    script = """
import sys
from pathlib import Path
from hermes_exec_agent.runtime.events import EventLog
from tests.rigs.meanings import WordEmbedder, add_note, open_indexer
where, log, name = sys.argv[1:]
indexer = open_indexer(where, log, WordEmbedder(), prepare=True)
for number in range(25):
    add_note(EventLog(Path(log)), f"{name}{number}", f"from {name} {number}")
    indexer.catch_up()
"""
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", script, address, str(log.path), name], stderr=subprocess.PIPE, text=True
        )
        for log, name in zip([*logs, *logs], "pqrs", strict=True)
    ]
    assert [(each.communicate()[1], each.returncode) for each in programs] == [("", 0)] * 4
    store.prepare(embedder.name, embedder.dimension)
    for log, names in zip(logs, ("pr", "qs"), strict=True):
        Indexer(log, store, embedder, read_skills=list).catch_up()
        expected = {f"note:{name}{number}": f"done: from {name} {number}" for name in names for number in range(25)}
        expected |= {f"note:before{number}": f"done: text {number}" for number in range(40)}
        assert store.texts(log.identity(), "episodic") == expected
    assert store.count()["episodic"] == 180


def test_a_damaged_file_is_kept_aside_and_built_again_from_the_log(
    embedder: WordEmbedder, log: EventLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_note(log, "c1", "the cluster has two nodes")
    path = tmp_path / "longterm.sqlite"
    path.write_bytes(b"no database at all " * 500)
    store = ExactStore(path)
    with caplog.at_level(logging.WARNING):
        store.prepare(embedder.name, embedder.dimension)
        Indexer(log, store, embedder, read_skills=list).catch_up()
    assert find(store, embedder, "cluster nodes", log.identity()) == ["done: the cluster has two nodes"]
    assert path.with_suffix(".damaged").read_bytes().startswith(b"no database")
    assert "built again" in caplog.text
    # Damage while it is open: the pages of the table.
    store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    assert find(store, embedder, "cluster nodes", log.identity()) == []
    Indexer(log, store, embedder, read_skills=list).catch_up()
    assert find(store, embedder, "cluster nodes", log.identity()) == ["done: the cluster has two nodes"]


def test_a_file_of_another_program_is_left_alone(tmp_path: Path, embedder: WordEmbedder) -> None:
    path = tmp_path / "longterm.sqlite"
    base = sqlite3.connect(path)
    base.execute("PRAGMA application_id = 7")
    base.execute("CREATE TABLE theirs (a)")
    base.close()
    with pytest.raises(HermesError, match="not a long-term memory"):
        ExactStore(path).prepare(embedder.name, embedder.dimension)


# PostgreSQL


def test_migrations_run_once_whoever_starts_first_and_a_later_version_is_refused() -> None:
    url = postgres.shared().create_database(vectors=False)
    script = """
import sys
from hermes_exec_agent.memory.longterm.postgres import PostgresStore
PostgresStore(sys.argv[1]).migrate()
"""
    programs = [subprocess.Popen([sys.executable, "-c", script, url]) for _ in range(4)]
    assert [each.wait() for each in programs] == [0] * 4
    with psycopg.connect(url, autocommit=True) as connection:
        assert connection.execute("SELECT number FROM hermes_memory_migrations").fetchall() == [(1,), (2,)]
        connection.execute("INSERT INTO hermes_memory_migrations (number) VALUES (99)")
    with pytest.raises(HermesError, match="a later version of hermes_exec"):
        PostgresStore(url).migrate()


def test_an_index_is_created_at_its_number_of_rows_used_and_measured(embedder: WordEmbedder, log: EventLog) -> None:
    url = postgres.shared().create_database()
    store = PostgresStore(url, index_from=300)
    store.prepare(embedder.name, embedder.dimension)
    words = [f"word{number % 60} other{number % 7} number{number}" for number in range(400)]
    put(store, embedder, *(remember(text) for text in words[:200]))
    store.maintain()
    assert store.list_indexes() == {}
    put(store, embedder, *(remember(text) for text in words[200:]))
    put(store, embedder, remember("word3 other3 elsewhere"), log="another")
    store.maintain()
    assert list(store.list_indexes().values()) == [True]
    assert store.has_index("episodic")
    assert store.measure_recall("log", "episodic") >= 0.97
    scans = "SELECT sum(idx_scan) FROM pg_stat_user_indexes WHERE indexrelname LIKE 'hermes_hnsw%'"
    with psycopg.connect(url, autocommit=True) as connection:
        wait_until(lambda: (connection.execute(scans).fetchone() or (0,))[0])
    assert len(store.nearest("log", embedder.embed(["word3 other3"], query=True)[0], ["episodic"], 5)) == 5
    before = store.list_indexes()
    Indexer(log, store, WordEmbedder("other", 64)).reembed()
    assert store.has_index("episodic")
    assert len(store.list_indexes()) == 1
    assert store.list_indexes() != before
    store.close()


def test_an_unreachable_database_is_an_error_without_its_password() -> None:
    store = PostgresStore("postgresql://hermes:s3cret-of-it@127.0.0.1:1/hermes")
    with pytest.raises(StoreUnavailable) as caught:
        store.prepare("words", 3)
    assert "s3cret" not in repr(caught.value) + repr(store)
    assert "MEMORY_DB_URL does not answer" in str(caught.value)
