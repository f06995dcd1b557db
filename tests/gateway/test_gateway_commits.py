"""Transactions of several threads that are committed together: on the disk when they return, and undone alone."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.frontends.gateway.database import connect
from hermes_exec_agent.frontends.gateway.grouped_commits import GroupedCommits
from hermes_exec_agent.testing import Held, Session, behaviour
from tests.rigs.bounded import wait_until
from tests.rigs.gateway import open_hub

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SCHEMA = """
CREATE TABLE parents (id INTEGER PRIMARY KEY);
CREATE TABLE rows (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED);
"""


class Threads:
    """Transactions that queue behind a first one; each has the ids that were on the disk when it returned."""

    def __init__(self, path: Path) -> None:
        self.path = path
        base = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        base.execute("PRAGMA journal_mode = WAL")
        base.execute("PRAGMA foreign_keys = ON")
        base.executescript(_SCHEMA)
        self.statements: list[str] = []
        base.set_trace_callback(self.statements.append)
        self.commits = GroupedCommits(base)
        self.seen: dict[str, list[int]] = {}
        self.errors: dict[str, str] = {}

    def run(self, **work: Callable[[sqlite3.Connection], object]) -> None:
        """Run the first one, and all others while it is open."""
        (first, begin), *rest = work.items()
        entered, go = threading.Event(), threading.Event()

        def hold(base: sqlite3.Connection) -> None:
            begin(base)
            entered.set()
            assert go.wait(60)

        threads = [threading.Thread(target=self._run, args=(first, hold))]
        threads[0].start()
        assert entered.wait(60)
        for name, each in rest:
            threads.append(threading.Thread(target=self._run, args=(name, each)))
            threads[-1].start()
        wait_until(lambda: self.commits.queued == len(rest))
        go.set()
        for thread in threads:
            thread.join(60)

    def _run(self, name: str, work: Callable[[sqlite3.Connection], object]) -> None:
        try:
            with self.commits.transact() as base:
                work(base)
        except (sqlite3.Error, ValueError) as error:
            self.errors[name] = str(error)
        with closing(sqlite3.connect(self.path)) as other:
            self.seen[name] = [row[0] for row in other.execute("SELECT id FROM rows ORDER BY id")]


def insert(id: int, parent: int | None = None) -> Callable[[sqlite3.Connection], object]:
    return lambda base: base.execute("INSERT INTO rows VALUES (?, ?)", (id, parent))


def insert_and_fail(base: sqlite3.Connection) -> None:
    base.execute("INSERT INTO rows VALUES (3, NULL)")
    raise ValueError("a mistake")


@pytest.fixture
def threads(tmp_path: Path) -> Threads:
    return Threads(tmp_path / "base.sqlite")


def test_transactions_that_come_together_have_one_commit_and_are_on_the_disk_when_they_return(threads: Threads) -> None:
    threads.run(a=insert(1), b=insert(2), c=insert_and_fail, d=lambda base: base.execute("SELECT * FROM rows"))
    assert threads.errors == {"c": "a mistake"}
    assert {name: seen for name, seen in threads.seen.items() if name != "c"} == {each: [1, 2] for each in "abd"}
    assert threads.statements.count("COMMIT") == 1


def test_a_commit_that_fails_fails_for_each_of_its_transactions_and_for_no_later_one(threads: Threads) -> None:
    threads.run(a=insert(1), b=insert(2, parent=9))
    assert set(threads.errors) == {"a", "b"}
    assert "FOREIGN KEY" in threads.errors["a"]
    threads.run(c=insert(3))
    assert threads.seen["c"] == [3]
    assert set(threads.errors) == {"a", "b"}


class TestStatements:
    @pytest.fixture
    def rig(self) -> Any:
        return open_hub

    @behaviour
    async def test_no_statement_for_a_message_reads_all_of_the_outbox(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        statements: list[str] = []
        with session.store.transact() as base:
            base.set_trace_callback(statements.append)
        await session.say("ada", "one")
        await session.read("ada", "echo: one")
        await session.stop()
        with closing(connect(session.folder / "gateway.sqlite")) as base:
            plans = {
                statement: [row["detail"] for row in base.execute(f"EXPLAIN QUERY PLAN {statement}")]
                for statement in set(statements)
                if statement.startswith(("SELECT", "UPDATE", "INSERT", "DELETE"))
            }
        assert any("INTO outbox" in each for each in plans)
        scans = [each for each, plan in plans.items() if {"SCAN outbox", "SEARCH outbox"} & set(plan)]
        assert scans == []
