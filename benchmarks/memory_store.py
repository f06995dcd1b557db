"""Long-term memory in PostgreSQL: the nearest of many vectors by the HNSW index, beside the exact scan.

The vectors have 384 numbers, and vary in 32 directions as those of texts do; vectors without such a structure would
make every index look bad.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import psycopg
from pgvector.psycopg import register_vector

from benchmarks.figures import Figure, Table, median, p95, spent
from hermes_exec_agent.memory.longterm.memory import Memory
from hermes_exec_agent.memory.longterm.postgres import PostgresStore
from hermes_exec_agent.memory.longterm.store import Batch
from tests.rigs import postgres

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS = 100_000
QUERY_MS, RECALL = 10.0, 0.97
"""What a quiet machine should keep to."""
_DIMENSION, _DIRECTIONS = 384, 32
_NEAREST = 10
_BATCH = 5_000
_LOG = "benchmark"
_EXACT = """
SELECT source FROM hermes_memories WHERE log = %s AND kind = 'episodic' ORDER BY embedding <=> %s LIMIT %s
"""


def _create_vectors(count: int, seed: int) -> NDArray[np.float32]:
    directions = np.random.default_rng(18).standard_normal((_DIRECTIONS, _DIMENSION)).astype(np.float32)
    random = np.random.default_rng(seed)
    found = random.standard_normal((count, _DIRECTIONS)).astype(np.float32) @ directions
    found += random.standard_normal((count, _DIMENSION)).astype(np.float32) * np.float32(0.1)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found


def figures(rows: int, queries: int) -> list[Figure | Table]:
    """Return the figures, or why there are none."""
    if find_spec(postgres.WHEEL) is None:
        return [Table("pgvector", ("not measured, and why",), ((f"{postgres.WHEEL} is not installed",),))]
    server = postgres.create()
    try:
        url = server.create_database()
        store = PostgresStore(url, index_from=rows // 2)
        try:
            return _measure(store, url, rows, queries)
        finally:
            store.close()
    finally:
        server.remove()


def _measure(store: PostgresStore, url: str, rows: int, queries: int) -> list[Figure | Table]:
    vectors, asked = _create_vectors(rows, 1), _create_vectors(queries, 2)
    filling = spent(lambda: _fill(store, vectors))
    building = spent(store.maintain)
    ours: list[float] = []
    exact: list[float] = []
    hits = 0
    with psycopg.connect(url, autocommit=True) as connection:
        register_vector(connection)
        connection.execute("SET enable_indexscan = off")
        store.nearest(_LOG, asked[0], ["episodic"], _NEAREST)
        for number, vector in enumerate(asked):
            found: list[str] = []
            ours.append(spent(lambda v=vector, f=found: f.extend(_find(store, v))))  # type: ignore[misc]  # defaults bind them
            best = np.argsort(-(vectors @ vector))[:_NEAREST]
            hits += len({f"v{each}" for each in best}.intersection(found))
            if number % 10 == 0:
                exact.append(spent(lambda v=vector: connection.execute(_EXACT, (_LOG, v, _NEAREST)).fetchall()))  # type: ignore[misc]  # the same
    name = f"pgvector, {rows:,} x {_DIMENSION} at ef 100"
    return [
        Figure(name, "ms", median(ours) * 1e3, "its exact scan", median(exact) * 1e3),
        Figure(name, "ms", median(ours) * 1e3, "the limit", QUERY_MS, 1.0),
        Figure(f"{name}, p95", "ms", p95(ours) * 1e3, "its exact scan", p95(exact) * 1e3),
        Figure(f"{name}, recall at {_NEAREST}", "", hits / (_NEAREST * queries), "asked for", RECALL, 1.0, "higher"),
        Figure(f"{name}: rows written", "per s", rows / filling, "", 0),
        Figure(f"{name}: the index built in", "s", building, "", 0),
    ]


def _fill(store: PostgresStore, vectors: NDArray[np.float32]) -> None:
    store.prepare("benchmark", _DIMENSION)
    for start in range(0, len(vectors), _BATCH):
        end = min(start + _BATCH, len(vectors))
        memories = [Memory("episodic", f"text {number}", f"v{number}", 0.0) for number in range(start, end)]
        if not store.write(_LOG, Batch(start, end, memories, vectors[start:end])):
            raise AssertionError("another program wrote to the database")


def _find(store: PostgresStore, vector: NDArray[np.float32]) -> list[str]:
    return [memory.source for memory, _ in store.nearest(_LOG, vector, ["episodic"], _NEAREST)]
