"""Writes the memories of an event log to a store.

The log is the queue: a store that was away, or a program that was killed, costs nothing but time, as the next run
continues at the recorded position. Several programs may run at once: a batch is applied by one of them.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from hermes_exec_agent.memory.longterm.sources import (
    KINDS_OF_EVENTS,
    KINDS_OF_TURNS,
    TRACEBACK,
    list_skills,
    read_events,
    read_turns,
)
from hermes_exec_agent.memory.longterm.store import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from hermes_exec_agent.memory.embedding.protocol import Embedder
    from hermes_exec_agent.memory.longterm.memory import Memory
    from hermes_exec_agent.memory.longterm.store import MemoryStore
    from hermes_exec_agent.runtime.events.log import EventLog

_EVENTS = 32
"""Events of a batch, so that a kill loses little work."""
_TURNS = 16
"""The same for turns, nearly all of which are embedded."""
_STRIDE = 10_000
"""Events without a memory after which the position is written nevertheless."""
_STALE = 32


class Indexer:
    """One log, and the store of its memories."""

    def __init__(
        self,
        log: EventLog,
        store: MemoryStore,
        embedder: Embedder,
        *,
        read_skills: Callable[[], Sequence[Memory] | None] = list_skills,
    ) -> None:
        self._log = log
        self._store = store
        self._embedder = embedder
        self._read_skills = read_skills
        self.stop = threading.Event()
        """Set to end a run after its batch."""

    def catch_up(self) -> int:
        """Index what the log has after the recorded positions, turns last; return the number of rows written.

        Raises:
            StoreUnavailable, EmbeddingFailed: the rest is left to the next run.
            AnotherEmbedder: the store has vectors of another one.
        """
        log = self._log.identity()
        if not log:
            return 0
        written = 0
        while not self.stop.is_set():
            position = self._store.position(log)
            events, upto = self._log.scan(position, KINDS_OF_EVENTS, TRACEBACK, _EVENTS)
            memories, keep = read_events(events, self._log.title)
            if not events and upto - position < _STRIDE:
                break
            if self._write(log, Batch(position, upto, memories, self._embed(memories), keep)):
                written += len(memories)
        written += 0 if self.stop.is_set() else self._index_skills(log)
        return written + self._index_turns(log)

    def rebuild(self) -> int:
        """Index the whole log again, from its beginning; return the number of rows written."""
        if log := self._log.identity():
            self._store.forget(log)
        return self.catch_up()

    def reembed(self, report: Callable[[int], None] = lambda _: None) -> int:
        """Record this embedder, and replace the vectors of other ones; return how many were replaced.

        A run that is killed is continued by the next one. ``report`` is called with the number of rows so far.
        """
        self._store.adopt(self._embedder.name, self._embedder.dimension)
        done = 0
        while not self.stop.is_set() and (rows := self._store.list_stale(_STALE)):
            vectors = self._embedder.embed([text for _, text in rows], query=False)
            self._store.replace_vectors(rows, vectors)
            done += len(rows)
            report(done)
        self._store.maintain()
        return done

    def _index_turns(self, log: str) -> int:
        written = 0
        while not self.stop.is_set():
            position = self._store.position(log, "turns")
            events, upto = self._log.scan(position, KINDS_OF_TURNS, "", _TURNS)
            if not events and upto - position < _STRIDE:
                break
            turns = read_turns(events)
            if self._write(log, Batch(position, upto, turns, self._embed(turns), part="turns")):
                written += len(turns)
        return written

    def _write(self, log: str, batch: Batch) -> bool:
        if not self._store.write(log, batch):
            return False
        if batch.memories:
            self._store.maintain()
        return True

    def _embed(self, memories: Sequence[Memory]) -> NDArray[np.float32]:
        return self._embedder.embed([each.text for each in memories], query=False)

    def _index_skills(self, log: str) -> int:
        skills = self._read_skills()
        if skills is None:
            return 0
        known = self._store.texts(log, "declarative")
        new = [each for each in skills if known.get(each.source) != each.text]
        sources = frozenset(each.source for each in skills)
        if not new and sources == known.keys():
            return 0
        position = self._store.position(log)
        written = self._write(log, Batch(position, position, new, self._embed(new), {"declarative": sources}))
        return len(new) if written else 0
