"""An embedder whose cosines a test computes by hand, and notes in a log; imported by programs that tests start."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hermes_exec_agent.memory.longterm.exact import ExactStore
from hermes_exec_agent.memory.longterm.indexer import Indexer
from hermes_exec_agent.memory.longterm.postgres import PostgresStore
from hermes_exec_agent.memory.notes import STREAM, Note, Sentence
from hermes_exec_agent.runtime.events import EventLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hermes_exec_agent.memory.longterm.store import MemoryStore


class WordEmbedder:
    """Counts words in a vector, each at a place of its own: the cosine grows with the words in common."""

    def __init__(self, name: str = "words", dimension: int = 256) -> None:
        self.name = name
        self.dimension = dimension
        self.count = 0

    def embed(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
        rows = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.lower().split() or ["?"]:
                row[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") % self.dimension] += 1
        self.count += len(texts)
        unit: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True) if len(texts) else rows
        return unit


def add_note(log: EventLog, conversation: str, text: str, upto: int = 1) -> None:
    """Append a note as the program that writes notes does."""
    note = Note(conversation, upto, time.time(), time.time(), (Sentence("done", text, (upto,), quoted=True),), "model")
    log.append(STREAM, "note", note.to_record())


def open_store(address: str) -> MemoryStore:
    """The store of a URL, or of a path."""
    return PostgresStore(address) if address.startswith("postgresql:") else ExactStore(Path(address))


def open_indexer(address: str, log: str, embedder: WordEmbedder, *, prepare: bool = False) -> Indexer:
    """An indexer of a log, over the store of an address."""
    store = open_store(address)
    if prepare:
        store.prepare(embedder.name, embedder.dimension)
    return Indexer(EventLog(Path(log)), store, embedder, read_skills=list)
