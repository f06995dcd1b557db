"""Memory: the recall of searches, their speed, what the journal costs, the space of a month, and the vector store.

The texts are synthetic: words by Zipf's law, the commonest of them English stop words, so that a question in plain
words meets the words that half of all notes have. Everything lives in folders that are deleted at the end.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import tempfile
import time
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from benchmarks import memory_peers, memory_store, retrieval
from benchmarks.agent import Nobody, Nothing
from benchmarks.figures import BLOCK, Figure, Table, median, p95, spent
from benchmarks.recall_data import read_shipped
from hermes_exec_agent.memory.entries import Entry
from hermes_exec_agent.memory.journal import Journal
from hermes_exec_agent.memory.note_writer import write_program_note
from hermes_exec_agent.memory.notes import STREAM, Note, Sentence
from hermes_exec_agent.models import Models
from hermes_exec_agent.models.endpoint import Endpoint
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.runtime.opening import open_conversation

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from hermes_exec_agent.runtime.events.event import Kind

SEARCH_MS, WRITE_MS, START_MS, MONTH_MB = 100.0, 5.0, 20.0, 300.0
"""What a quiet machine should keep to."""
NOTES = 1_000_000
MONTH = 2_000
"""Conversations of a month."""
_WORDS = 50_000
_NOTE_WORDS = 40
_BATCH = 5_000
_RESULT_WORDS = 250
_COMMON = (
    "the of to and a in is it you that was for on are with as at be this from or had by but what some we can out other "
    "were all there when up use your how said an each which their if will way about many then them would so these her "
    "long make thing see him two has look more day could go come did my no most who over know than call first may down"
)


class Vocabulary:
    """Words by Zipf's law; the same ones in each run."""

    def __init__(self, seed: int = 18) -> None:
        self._random = random.Random(seed)
        sounds = [a + b for a in "bcdfghjklmnprstvwz" for b in "aeiou"]
        made: dict[str, None] = {}
        while len(made) < _WORDS:
            made["".join(self._random.choices(sounds, k=self._random.randint(2, 4)))] = None
        self.words = [*_COMMON.split(), *made][:_WORDS]
        self._weights = list(accumulate(1 / rank for rank in range(1, _WORDS + 1)))

    def text(self, count: int) -> str:
        """Return ``count`` words."""
        return " ".join(self._random.choices(self.words, cum_weights=self._weights, k=count))

    def question(self) -> str:
        """Return a question in plain words, with three words that tell something."""
        a, b = (self.words[self._random.randint(100, 3_000)] for _ in range(2))
        return (
            f"what did we say about the {a} and how was it with {b} when {self.words[self._random.randint(100, 500)]}"
        )


def measure_search(count: int, rounds: int, vocabulary: Vocabulary) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="hx-notes-") as folder, EventLog(Path(folder, "log.sqlite")) as log:
        began = time.perf_counter()
        for start in range(0, count, _BATCH):
            numbers = range(start, min(start + _BATCH, count))
            log.append_all(STREAM, [("note", _create_note(number, vocabulary)) for number in numbers])
        filling = count / (time.perf_counter() - began)
        questions = [vocabulary.question() for _ in range(rounds)]
        base = sqlite3.connect(log.path)
        ours: list[float] = []
        naive: list[float] = []
        for start in range(0, rounds, BLOCK):
            block = questions[start : start + BLOCK]
            ours += [spent(lambda text=text: log.search(text)) for text in block]  # type: ignore[misc]  # a default binds it
            naive += [spent(lambda text=text: _search_naively(base, text)) for text in block[: BLOCK // 4]]  # type: ignore[misc]  # the same
        base.close()
    name = f"search in {count:,} notes"
    return [
        Figure(name, "ms", median(ours) * 1e3, "a bare OR of all words", median(naive) * 1e3),
        Figure(f"{name}, p95", "ms", p95(ours) * 1e3, "a bare OR of all words", p95(naive) * 1e3),
        Figure(f"{name}, p95", "ms", p95(ours) * 1e3, "the limit", SEARCH_MS, 1.0),
        Figure(f"{name}: recorded and indexed", "per s", filling, "", 0),
    ]


def _create_note(number: int, vocabulary: Vocabulary) -> dict[str, Any]:
    sentence = Sentence("done", vocabulary.text(_NOTE_WORDS), (2,))
    return Note(f"c{number:07}", 3, number, number + 1.0, (sentence,), "program").to_record()


def _search_naively(base: sqlite3.Connection, text: str) -> list[Any]:
    query = " OR ".join(f'"{word}"' for word in text.split())
    statement = "SELECT rowid FROM note_words WHERE note_words MATCH ? ORDER BY rank LIMIT 20"
    return base.execute(statement, (query,)).fetchall()


def measure_writes(rounds: int, vocabulary: Vocabulary) -> list[Figure]:
    """Measure a change of a full journal, beside the same bytes to a file that replaces another one."""
    with tempfile.TemporaryDirectory() as folder, EventLog(Path(folder, "log.sqlite")) as log:
        journal = Journal(Path(folder, "memory"), log, {"memory": 2200, "user": 1375})
        _fill_journal(journal, vocabulary)
        size = len(journal.path("memory").read_bytes())
        times: list[float] = []
        floor: list[float] = []
        for number in range(0, rounds, BLOCK):
            times += [spent(lambda n=n: _replace_first(journal, f"entry {n}")) for n in range(number, number + BLOCK)]  # type: ignore[misc]  # a default binds it
            floor += [spent(lambda: _replace_file(Path(folder, "floor"), size)) for _ in range(BLOCK)]
    return [
        Figure("a change of the full journal", "ms", median(times) * 1e3, "write, sync, rename", median(floor) * 1e3),
        Figure("a change of the full journal", "ms", median(times) * 1e3, "the limit", WRITE_MS, 1.0),
        Figure("a change of the full journal, p95", "ms", p95(times) * 1e3, "write, sync, rename", p95(floor) * 1e3),
    ]


def _fill_journal(journal: Journal, vocabulary: Vocabulary) -> None:
    texts = {target: [vocabulary.text(14) for _ in range(count)] for target, count in (("memory", 18), ("user", 11))}
    journal.write("memory", lambda _: [Entry(text) for text in texts["memory"]], who="person", why="benchmark")
    journal.write("user", lambda _: [Entry(text) for text in texts["user"]], who="person", why="benchmark")


def _replace_first(journal: Journal, text: str) -> None:
    journal.write("memory", lambda entries: [Entry(text), *entries[1:]], who="agent", why="benchmark")


def _replace_file(path: Path, size: int) -> None:
    pending = path.with_suffix(".pending")
    with pending.open("wb") as file:
        file.write(b"x" * size)
        file.flush()
        os.fsync(file.fileno())
    pending.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


@contextmanager
def _user(folder: Path, settings: str) -> Generator[None]:
    """Be a user with these ``[memory]`` settings and a state folder of their own."""
    file = folder / "config/hermes_exec/hermes.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"[memory]\n{settings}\n")
    changed = {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_STATE_HOME": str(folder / "state")}
    with mock.patch.dict(os.environ, changed):
        yield


async def measure_starts(rounds: int, vocabulary: Vocabulary) -> list[Figure]:
    """Measure a conversation's opening over the local target, with full memory and without any."""
    enabled = "memory_enabled = true\nuser_profile_enabled = true"
    times: dict[str, list[float]] = {"": [], enabled: []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds + 1):
            for settings, taken in times.items():
                with _user(Path(folder, "with" if settings else "without"), settings):
                    log = EventLog.of_user()
                    if settings and not number:
                        _fill_journal(Journal(Path(folder, "with/state/hermes_exec/memory"), log,
                                              {"memory": 2200, "user": 1375}), vocabulary)  # fmt: skip
                    taken.append(await _open_once(log))
                    log.close()
    without, full = (each[1:] for each in times.values())
    more = (median(full) - median(without)) * 1e3
    return [
        Figure("a conversation's start with full memory", "ms", median(full) * 1e3, "without", median(without) * 1e3),
        Figure("… more than without", "ms", more, "the limit", START_MS, 1.0),
    ]


async def _open_once(log: EventLog) -> float:
    models = Models(Endpoint("m", base_url="http://127.0.0.1:9/v1", window=1 << 20))
    began = time.perf_counter()
    async with open_conversation("local", models=models, person=Nobody(), log=log, tools=[Nothing()]):
        return time.perf_counter() - began


def measure_month(count: int, vocabulary: Vocabulary) -> list[Figure | Table]:
    """Measure the bytes of conversations like those that ship, with outputs of 1,500 characters, and of notes."""
    kinds = read_shapes()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log.sqlite")
        with EventLog(path) as log:
            for number in range(count):
                name = f"20260101-{number:06}"
                log.append_all(name, list(create_conversation(kinds[number % len(kinds)], vocabulary)))
                write_program_note(log, name)
        base = sqlite3.connect(path)
        base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        tables = base.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC").fetchall()
        base.close()
        size = path.stat().st_size / 1e6 * MONTH / count
    scale = MONTH / count / 1e6
    rows = tuple((each, f"{pages * scale:.1f} MB") for each, pages in tables if pages * scale >= 1)
    return [
        Figure(f"{MONTH:,} conversations on disk", "MB", size, "the limit", MONTH_MB, 1.0),
        Table(f"{MONTH:,} conversations on disk, by table", ("table or index", "size"), rows, _SCALED[count < MONTH]),
    ]


_SCALED: dict[bool, tuple[str, ...]] = {False: (), True: ("Scaled up from a part of them.",)}


def read_shapes() -> list[list[str]]:
    """Return the kinds of the events of each conversation that ships."""
    shapes: dict[str, list[str]] = {}
    for turn in read_shipped()[0].turns:
        shapes.setdefault(turn.key[0], []).append(turn.kind)
    return list(shapes.values())


def create_conversation(kinds: Sequence[str], vocabulary: Vocabulary) -> Iterator[tuple[Kind, dict[str, Any]]]:
    """Yield events of these kinds, with texts of plausible length."""
    for kind in kinds:
        if kind == "started":
            yield "started", {"target": "local", "model": "m", "scripted": False, "system": vocabulary.text(400)}
        elif kind == "user":
            yield "user", {"content": vocabulary.text(30)}
        elif kind == "assistant":
            call = {"id": "call_1", "name": "terminal", "arguments": f'{{"command": "{vocabulary.text(8)}"}}'}
            yield "assistant", {"content": vocabulary.text(50), "tool_calls": [call]}
        elif kind == "call":
            yield "call", {"id": "call_1", "name": "terminal"}
        else:
            yield "result", {"id": "call_1", "name": "terminal", "content": vocabulary.text(_RESULT_WORDS)}


def figures(part: int) -> list[Figure | Table]:
    """Measure everything, by how much less than the whole."""
    load = os.getloadavg()[0]
    vocabulary = Vocabulary()
    found: list[Figure | Table] = [
        *measure_search(NOTES // (part * part), 400 // part, vocabulary),
        *measure_writes(200 // part, vocabulary),
        *asyncio.run(measure_starts(60 // part, vocabulary)),
        *measure_month(MONTH // part, vocabulary),
        *memory_store.figures(memory_store.ROWS // part, 200 // part),
        *retrieval.tables(whole=part == 1),
        *memory_peers.tables(whole=part == 1),
    ]
    ends = f"{load:.1f} before and {os.getloadavg()[0]:.1f} after, on {os.cpu_count()} cores"
    return [
        *found,
        Table("Load of this machine while memory was measured", ("processes that ran or waited",), ((ends,),)),
    ]
