"""The benchmark of memory in a reduced form, and the recall that docs/benchmarks.md states."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks import memory, memory_store, retrieval
from benchmarks.figures import Figure, Table, as_json, show
from benchmarks.recall_data import LOCOMO, SHIPPED, open_log, read_locomo, read_shipped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.recall_data import Corpus
    from hermes_exec_agent.runtime.events import EventLog

PAGE = Path(__file__).parents[2] / "docs/benchmarks.md"
STATED = re.compile(
    rf"\*\*Shipped, 200 questions, turns\*\*.*?\| {re.escape(retrieval.WORDS)} \|([^\n]*)\|\n", re.DOTALL
)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """The set that ships."""
    return read_shipped()[0]


@pytest.fixture(scope="module")
def log(corpus: Corpus) -> Iterator[EventLog]:
    """A log with its conversations."""
    with open_log(corpus) as log:
        yield log


def test_words_find_at_least_the_evidence_that_the_page_states(corpus: Corpus, log: EventLog) -> None:
    search = retrieval.search_words(log, "messages", "results")
    found = retrieval.average([(search, corpus)], sessions=False)
    row = STATED.search(PAGE.read_text(encoding="utf-8"))
    assert row is not None
    stated = dict(zip(retrieval.DEPTHS, map(float, row[1].split("|")), strict=True))
    assert round(found[retrieval.DEPTHS.index(10)], 3) >= stated[10]


def test_the_shipped_questions_name_events_and_paraphrases_share_no_word_with_them(
    corpus: Corpus, log: EventLog
) -> None:
    counts = Counter(question.kind for question in corpus.questions)
    table = dict(
        re.findall(r"^\| `(\w+)` \| (\d+) \|", (SHIPPED / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert {kind: str(count) for kind, count in counts.items()} == table
    assert len({turn.key[0] for turn in corpus.turns}) == 40
    known = {turn.key for turn in corpus.turns if turn.text}
    search = retrieval.search_words(log, "messages", "results")
    for question in corpus.questions:
        assert question.gold <= known, question.text
        if question.kind == "paraphrase":
            assert not question.gold.intersection(search(question)), question.text


def test_a_mixture_counts_both_rankings_by_their_weights(corpus: Corpus) -> None:
    question = corpus.questions[0]
    words = retrieval.mix((2, lambda _: [("a", 1), ("b", 1)]), (1, lambda _: [("b", 1), ("c", 1)]))
    assert words(question) == [("b", 1), ("a", 1), ("c", 1)]
    assert retrieval.find_sessions(lambda _: [("a", 2), ("b", 1), ("a", 1)])(question) == [("a", 0), ("b", 0)]


def test_a_reduced_benchmark_has_every_figure() -> None:
    vocabulary = memory.Vocabulary()
    found: list[Figure | Table] = [
        *memory.measure_search(200, 20, vocabulary),
        *memory.measure_writes(20, vocabulary),
        *asyncio.run(memory.measure_starts(2, vocabulary)),
        *memory.measure_month(20, vocabulary),
        *memory_store.figures(400, 20),
    ]
    text = show(found)
    for name in ("search in 200 notes, p95", "a change of the full journal", "full memory", "conversations on disk"):
        assert name in text
    figures = [each for each in found if isinstance(each, Figure)]
    assert all(each.ours > 0 for each in figures if "more than" not in each.name)
    (month,) = (each for each in figures if each.name.endswith("on disk"))
    assert month.met
    assert as_json(found).count('"headings"') == sum(isinstance(each, Table) for each in found)


def test_data_that_was_not_fetched_is_skipped_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOCOMO, raising=False)
    assert LOCOMO in str(read_locomo())
    monkeypatch.setenv(LOCOMO, str(tmp_path))
    assert "locomo10.zip" in str(read_locomo())
