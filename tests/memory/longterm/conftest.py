"""Both stores, an embedder whose meanings a test can compute by hand, and logs with notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec_agent.memory.longterm.memory import Memory
from hermes_exec_agent.memory.longterm.store import Batch
from tests.rigs import postgres
from tests.rigs.meanings import WordEmbedder, open_store

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from hermes_exec_agent.memory.longterm.memory import Kind
    from hermes_exec_agent.memory.longterm.store import MemoryStore

DAY = 86_400.0


def remember(text: str, source: str = "", kind: Kind = "episodic", at: float = 0.0) -> Memory:
    return Memory(kind, text, source or f"note:{text}", at)


def put(store: MemoryStore, embedder: WordEmbedder, *memories: Memory, log: str = "log") -> None:
    at = store.position(log)
    vectors = embedder.embed([each.text for each in memories], query=False)
    assert store.write(log, Batch(at, at + 1, memories, vectors))


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder()


@pytest.fixture(params=["exact", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The path or the URL of an empty store."""
    return str(tmp_path / "longterm.sqlite") if request.param == "exact" else postgres.shared().create_database()


@pytest.fixture
def store(address: str) -> Generator[MemoryStore]:
    """An empty store."""
    made = open_store(address)
    yield made
    made.close()
