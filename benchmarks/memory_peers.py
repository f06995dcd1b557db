"""Other projects' session search and memory tools on the same conversations, each in an environment of its own.

Their searches return the conversations, and the messages, that a model would read. A model words the query itself, so
that each question is asked twice: as the person asked it, and as its words without stop words, joined by OR where the
project's language of queries has it.
"""

from __future__ import annotations

import json
import re
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.figures import Table, median, p95, spent
from benchmarks.peers.serve import MEMORY_PEERS, Peer
from benchmarks.recall_data import open_log, read_locomo, read_shipped
from benchmarks.retrieval import DEPTHS, find_sessions, measure, search_words
from hermes_exec_agent.memory.entries import Entry
from hermes_exec_agent.memory.journal import Journal
from hermes_exec_agent.runtime.events import EventLog

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from benchmarks.recall_data import Corpus, Key, Question
    from benchmarks.retrieval import Search

_WRITES = 40
_STOP_WORDS = (
    "a an and are as at be but by can did do does for from had has have he her his how i if in into is it its me my of "
    "on or our she so that the their them then there these they this to was we were what when where which who why will "
    "with you your"
)
_ABSENT = (
    ("hermes-agent", "review of a conversation that writes memory by itself", "a model is needed"),
    ("hermes-agent", "memory providers for search by meaning", "a service or a model is needed"),
    ("pydantic-ai-harness", "smart search", "a model is needed"),
    ("pydantic-ai-harness", "memory in PostgreSQL", "it has texts without vectors, so that nothing compares"),
)
"""What was not measured of the others, and why."""


class MemoryPeer:
    """A peer's process, with one corpus loaded at a time."""

    def __init__(self, name: str, home: str) -> None:
        self._peer = Peer(name, home, "memory", HERMES_HOME=f"{home}/hermes")
        self.times: list[float] = []

    def load(self, corpus: Corpus, folder: Path) -> None:
        """Load the conversations."""
        path = folder / "conversations.jsonl"
        rows = (
            {"conversation": turn.key[0], "number": turn.key[1], "at": turn.at, "kind": turn.kind, "data": turn.data}
            for turn in corpus.turns
        )
        path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
        self._ask("load", str(path))

    def search(self, query: str) -> tuple[list[Key], list[Key]]:
        """Return the messages, and the conversations with 0 as their number."""
        answer = self._ask("search", query)
        self.times.append(answer["took"])
        return [(each[0], each[1]) for each in answer["turns"]], [(each, 0) for each in answer["sessions"]]

    def write(self, old: str, new: str) -> float:
        """Return the seconds for an entry of memory that is added, or replaces ``old``."""
        answer = self._ask("write", old, new)
        if not answer["ok"]:
            raise AssertionError(f"{self._peer.name} refused an entry")
        return float(answer["took"])

    def close(self) -> None:
        """End the process."""
        self._peer.close()

    def _ask(self, *request: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._peer.ask(json.dumps(request), "answer "))
        return answer


@contextmanager
def _serving(name: str) -> Generator[MemoryPeer]:
    with tempfile.TemporaryDirectory() as home:
        peer = MemoryPeer(name, home)
        try:
            yield peer
        finally:
            peer.close()


def _to_words(question: str) -> list[str]:
    return [word for word in re.findall(r"\w+", question) if word.lower() not in _STOP_WORDS.split()]


def _measure_ours(corpora: Sequence[Corpus]) -> tuple[str, ...]:
    rows: list[tuple[list[float], list[float]]] = []
    times: list[float] = []
    for corpus in corpora:
        with open_log(corpus) as log:
            search = search_words(log, "messages", "results")
            everything = find_sessions(search_words(log, "messages", "results", "notes"))
            for question in corpus.questions:
                times.append(spent(lambda s=search, q=question: s(q)))  # type: ignore[misc]  # defaults bind them
                rows.append(_recall(search, everything, question))
    return _row("hermes_exec, as asked", rows, times)


def _measure_theirs(name: str, corpora: Sequence[Corpus], *, joined: bool) -> tuple[str, ...]:
    rows: list[tuple[list[float], list[float]]] = []
    with _serving(name) as peer, tempfile.TemporaryDirectory() as folder:
        for corpus in corpora:
            peer.load(corpus, Path(folder))
            for question in corpus.questions:
                query = " OR ".join(_to_words(question.text)) if joined else question.text
                turns, sessions = peer.search(query or question.text)
                rows.append(_recall(lambda _, t=turns: t, lambda _, s=sessions: s, question))  # type: ignore[misc]  # defaults bind them
        times = peer.times
    return _row(f"{name} {MEMORY_PEERS[name]}, {'words joined by OR' if joined else 'as asked'}", rows, times)


def _recall(turns: Search, sessions: Search, question: Question) -> tuple[list[float], list[float]]:
    return measure(turns, question, sessions=False), measure(sessions, question, sessions=True)


def _row(name: str, rows: Sequence[tuple[list[float], list[float]]], times: list[float]) -> tuple[str, ...]:
    turns, sessions = (np.mean([row[level] for row in rows], axis=0) for level in (0, 1))
    shown = [f"{values[DEPTHS.index(depth)]:.3f}" for values in (turns, sessions) for depth in (5, 10)]
    return (name, *shown, f"{median(times) * 1e3:.1f} ms", f"{p95(times) * 1e3:.1f} ms")


def _compare(name: str, corpora: Sequence[Corpus]) -> Table:
    rows = [
        _measure_ours(corpora),
        _measure_theirs("hermes-agent", corpora, joined=False),
        _measure_theirs("hermes-agent", corpora, joined=True),
        _measure_theirs("pydantic-ai-harness", corpora, joined=False),
    ]
    headings = ("search", "turns at 5", "turns at 10", "sessions at 5", "sessions at 10", "median", "p95")
    return Table(f"{name}: recall of other projects' searches", headings, tuple(rows))


def _write() -> Table:
    rows: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory() as folder, EventLog(Path(folder, "log.sqlite")) as log:
        journal = Journal(Path(folder, "memory"), log, {"memory": 2200})
        journal.write("memory", lambda _: [Entry(_entry(0))], who="agent", why="benchmark")

        def change(number: int) -> None:
            journal.write("memory", lambda _: [Entry(_entry(number))], who="agent", why="benchmark")

        ours = [spent(lambda n=number: change(n)) for number in range(1, _WRITES)]  # type: ignore[misc]  # a default binds it
    rows.append(("hermes_exec", f"{median(ours) * 1e3:.2f} ms", f"{p95(ours) * 1e3:.2f} ms"))
    for name, version in MEMORY_PEERS.items():
        with _serving(name) as peer:
            peer.write("", _entry(0))
            times = [peer.write(_entry(number - 1), _entry(number)) for number in range(1, _WRITES)]
        rows.append((f"{name} {version}", f"{median(times) * 1e3:.2f} ms", f"{p95(times) * 1e3:.2f} ms"))
    return Table("An entry of memory replaced", ("memory", "median", "p95"), tuple(rows))


def _entry(number: int) -> str:
    return f"the staging cluster is reached by login node number {number:03} and needs a ticket"


def tables(*, whole: bool) -> list[Table]:
    """Return the tables beside other projects."""
    found = [_compare("Shipped", read_shipped()), _write()]
    locomo = read_locomo() if whole else ""
    if not isinstance(locomo, str):
        found.append(_compare("LoCoMo", locomo))
    return [*found, Table("Not measured of other projects", ("project", "what", "why"), _ABSENT)]
