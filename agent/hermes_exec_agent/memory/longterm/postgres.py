"""A store in PostgreSQL with pgvector, which several agents on several machines may share.

A kind with few rows is searched exactly. From `INDEX_FROM` rows on it gets an HNSW index of its own, which finds nearly
all of the nearest in a fraction of the time; ``memory doctor`` measures its recall.

The schema has numbered migrations, each applied once. All of them run in one transaction under an advisory lock, so
that programs that start at the same time do not collide. A migration that was released is never changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
from typing import TYPE_CHECKING, Any, LiteralString

from hermes_exec.errors import HermesError
from hermes_exec.extras import require
from hermes_exec_agent.memory.database import VARIABLE, describe_error
from hermes_exec_agent.memory.entries import Source
from hermes_exec_agent.memory.longterm.memory import KINDS, Memory
from hermes_exec_agent.memory.longterm.store import PARTS, StoreUnavailable, another_embedder, name_position

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    import numpy as np
    import psycopg
    from numpy.typing import NDArray
    from psycopg.sql import Composed
    from psycopg_pool import ConnectionPool

    from hermes_exec_agent.memory.longterm.memory import Kind
    from hermes_exec_agent.memory.longterm.store import Batch, Part

    Connection = psycopg.Connection[Any]
    import psycopg

INDEX_FROM = 50_000
"""Rows of a kind from which on it is indexed."""
EF_SEARCH = 100
"""Candidates that HNSW keeps while it searches."""
_PATIENCE_S = 5.0
"""How long a caller waits for a connection."""
_QUERY_MS = 5_000
_SAMPLES, _SAMPLED_MATCHES = 50, 10
"""Rows that are queries when the recall is measured, and the nearest rows of each that are compared."""
_EQUAL = 1e-6
"""The difference of cosines below which two rows count as equally near."""
_CONNECTION = {
    "connect_timeout": 3,
    "tcp_user_timeout": 5_000,
    "keepalives_idle": 30,
    "application_name": "hermes-exec",
}
_ITERATIVE = (0, 8)
"""The version of pgvector from which on HNSW continues until enough rows fit the other conditions."""
_UPSERT = """
INSERT INTO hermes_memories AS old (log, source, kind, text, at, origin, evidence, embedder, embedding)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (log, source) DO UPDATE SET at = CASE WHEN old.text = excluded.text THEN old.at ELSE excluded.at END,
    text = excluded.text, kind = excluded.kind, origin = excluded.origin, evidence = excluded.evidence,
    embedder = excluded.embedder, embedding = excluded.embedding
"""
_NEAREST: LiteralString = """
SELECT kind, text, source, at, origin, evidence, 1 - (embedding::vector({size}) <=> %(vector)s) FROM hermes_memories
WHERE kind = {kind} AND embedder = {embedder} AND log = %(log)s
ORDER BY embedding::vector({size}) <=> %(vector)s LIMIT %(count)s
"""
_CREATE_INDEX: LiteralString = """
CREATE INDEX CONCURRENTLY {name} ON hermes_memories USING hnsw ((embedding::vector({size})) vector_cosine_ops)
WITH (m = 24, ef_construction = 128) WHERE kind = {kind} AND embedder = {embedder}
"""
"""With the defaults of pgvector (16, 64) the index finds 96 % of the nearest of 100,000 rows."""
_INDEXES = """
SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = 'hermes_memories'::regclass AND c.relname LIKE 'hermes\\_hnsw\\_%'
"""
LOCK = 0x6865726D_6D656D00
"""The key of the advisory lock."""
MIGRATIONS: tuple[LiteralString, ...] = (
    """
    CREATE TABLE hermes_memory_embedder (
        one boolean PRIMARY KEY DEFAULT true CHECK (one), name text NOT NULL, dimension integer NOT NULL
    );
    CREATE TABLE hermes_memory_positions (log text PRIMARY KEY, position bigint NOT NULL);
    CREATE TABLE hermes_memories (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        log text NOT NULL,
        source text NOT NULL,
        kind text NOT NULL CHECK (kind IN ('episodic', 'semantic', 'declarative')),
        text text NOT NULL,
        at double precision NOT NULL,
        origin text NOT NULL,
        evidence jsonb NOT NULL,
        embedder text NOT NULL,
        embedding vector NOT NULL,
        UNIQUE (log, source)
    );
    CREATE INDEX hermes_memories_by_kind ON hermes_memories (log, kind);
    """,
    """
    ALTER TABLE hermes_memories DROP CONSTRAINT hermes_memories_kind_check,
        ADD CONSTRAINT hermes_memories_kind_check CHECK (kind IN ('episodic', 'semantic', 'declarative', 'turn'));
    """,
)
"""Vectors have no fixed dimension, so that rows of two embedders exist next to each other while they are replaced."""


class PostgresStore:
    """Memories in the database of a URL, which is a secret and in no message."""

    def __init__(self, url: str, *, index_from: int = INDEX_FROM) -> None:
        """Nothing is connected before the first use."""
        self._url = url
        self._index_from = index_from
        self._lock = threading.Lock()
        self._pool: ConnectionPool[Connection] | None = None
        self._embedder: tuple[str, int] = ("", 0)

    def __repr__(self) -> str:
        return f"PostgresStore({VARIABLE})"

    def migrate(self) -> None:
        """Create or migrate the schema.

        Raises:
            HermesError: see `migrations.migrate`.
        """
        with self._connect_once() as connection:
            migrate(connection)

    def prepare(self, embedder: str, dimension: int) -> None:
        """Migrate the schema, and record the embedder; see `MemoryStore.prepare`."""
        self.migrate()
        self._embedder = (embedder, dimension)
        with self._connect() as connection, connection.transaction():
            self._check_embedder(connection)

    def adopt(self, embedder: str, dimension: int) -> None:
        """Record another embedder; see `MemoryStore.adopt`."""
        self.migrate()
        with self._connect() as connection:
            connection.execute(
                "INSERT INTO hermes_memory_embedder (name, dimension) VALUES (%s, %s)"
                " ON CONFLICT (one) DO UPDATE SET name = excluded.name, dimension = excluded.dimension",
                (embedder, dimension),
            )
        self._embedder = (embedder, dimension)

    def position(self, log: str, part: Part = "memories") -> int:
        """Return a position of a log."""
        with self._connect() as connection:
            return _read_position(connection, name_position(log, part))

    def write(self, log: str, batch: Batch) -> bool:
        """Apply a batch; see `MemoryStore.write`."""
        from psycopg.types.json import Jsonb

        rows = [
            (log, each.source, each.kind, each.text, each.at, each.origin,
             Jsonb([[source.conversation, source.number] for source in each.evidence]), self._embedder[0], vector)
            for each, vector in zip(batch.memories, batch.vectors, strict=True)
        ]  # fmt: skip
        key = name_position(log, batch.part)
        with self._connect() as connection, connection.transaction():
            self._check_embedder(connection)
            connection.execute("INSERT INTO hermes_memory_positions VALUES (%s, 0) ON CONFLICT DO NOTHING", (key,))
            if _read_position(connection, key, lock=True) != batch.after:
                return False
            with connection.cursor() as cursor:
                cursor.executemany(_UPSERT, rows)
            for kind, sources in batch.keep.items():
                connection.execute(
                    "DELETE FROM hermes_memories WHERE log = %s AND kind = %s AND source <> ALL (%s)",
                    (log, kind, list(sources)),
                )
            connection.execute("UPDATE hermes_memory_positions SET position = %s WHERE log = %s", (batch.upto, key))
            return True

    def nearest(
        self, log: str, vector: NDArray[np.float32], kinds: Sequence[Kind], count: int
    ) -> list[tuple[Memory, float]]:
        """Return the nearest memories of each kind."""
        found: list[tuple[Memory, float]] = []
        with self._connect() as connection, connection.transaction():
            self._set_search(connection)
            for kind in kinds:
                rows = connection.execute(
                    self._compose(_NEAREST, kind), {"vector": vector, "log": log, "count": count}
                ).fetchall()
                found += [(_to_memory(row), float(row[6])) for row in rows]
        return found

    def texts(self, log: str, kind: Kind) -> dict[str, str]:
        """Return the texts of a kind by their sources."""
        with self._connect() as connection:
            query = "SELECT source, text FROM hermes_memories WHERE log = %s AND kind = %s"
            return dict(connection.execute(query, (log, kind)).fetchall())

    def count(self, log: str = "") -> dict[Kind, int]:
        """Count the rows of each kind."""
        with self._connect() as connection:
            query = "SELECT kind, count(*) FROM hermes_memories WHERE %s::text IN ('', log) GROUP BY kind"
            found: dict[str, int] = dict(connection.execute(query, (log,)).fetchall())
        return {kind: found.get(kind, 0) for kind in KINDS}

    def list_stale(self, limit: int) -> list[tuple[int, str]]:
        """Return rows with vectors of another embedder."""
        with self._connect() as connection:
            query = (
                "SELECT id, text FROM hermes_memories WHERE embedder <> (SELECT name FROM hermes_memory_embedder)"
                " ORDER BY id LIMIT %s"
            )
            return list(connection.execute(query, (limit,)).fetchall())

    def count_stale(self) -> int:
        """Count these rows."""
        query = "SELECT count(*) FROM hermes_memories WHERE embedder <> (SELECT name FROM hermes_memory_embedder)"
        with self._connect() as connection:
            row = connection.execute(query).fetchone()
        return int(row[0]) if row else 0

    def replace_vectors(self, rows: Sequence[tuple[int, str]], vectors: NDArray[np.float32]) -> None:
        """Give these rows new vectors."""
        values = [(self._embedder[0], vector, *row) for row, vector in zip(rows, vectors, strict=True)]
        with self._connect() as connection, connection.transaction():
            self._check_embedder(connection)
            with connection.cursor() as cursor:
                cursor.executemany(
                    "UPDATE hermes_memories SET embedder = %s, embedding = %s WHERE id = %s AND text = %s", values
                )

    def forget(self, log: str) -> None:
        """Remove all rows of a log, and its positions."""
        keys = [name_position(log, part) for part in PARTS]
        with self._connect() as connection, connection.transaction():
            connection.execute("DELETE FROM hermes_memory_positions WHERE log = ANY (%s)", (keys,))
            connection.execute("DELETE FROM hermes_memories WHERE log = %s", (log,))

    def maintain(self) -> None:
        """Create the HNSW index of each kind that has enough rows, and remove those of other embedders.

        One program builds at a time, and writers continue meanwhile. The server completes a build whose client was
        killed, or leaves an index that is not valid, which the next call replaces.
        """
        from psycopg import sql

        counts = self._count_indexable()
        wanted = {self._index_name(kind) for kind in KINDS if counts.get(kind, 0) >= self._index_from}
        existing = self.list_indexes()
        unwanted = [name for name, is_valid in existing.items() if not is_valid or name not in self._index_names()]
        if not unwanted and wanted <= existing.keys():
            return
        with self._connect_once() as connection:
            locked = connection.execute("SELECT pg_try_advisory_lock(%s)", (LOCK + 1,)).fetchone()
            if not (locked and locked[0]):
                return
            # A build by several workers needs more shared memory than containers have by default.
            connection.execute("SET max_parallel_maintenance_workers = 0")
            connection.execute("SET maintenance_work_mem = '512MB'")
            for name in unwanted:
                connection.execute(sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier(name)))
            existing = self.list_indexes()
            for kind in KINDS:
                name = self._index_name(kind)
                if name in wanted and name not in existing:
                    connection.execute(self._compose(_CREATE_INDEX, kind, name=sql.Identifier(name)))

    def list_indexes(self) -> dict[str, bool]:
        """Return the names of the HNSW indexes, and whether each is valid."""
        with self._connect() as connection:
            return dict(connection.execute(_INDEXES).fetchall())

    def has_index(self, kind: Kind) -> bool:
        """Whether the rows of a kind have a valid index."""
        return self.list_indexes().get(self._index_name(kind), False)

    def measure_recall(self, log: str, kind: Kind) -> float:
        """Return the part of the exactly nearest rows that the index finds, over rows of this log as queries.

        Returns:
            A number from 0 to 1; 1 without rows.
        """
        query = self._compose(_NEAREST, kind)
        hits = total = 0
        with self._connect() as connection, connection.transaction():
            self._set_search(connection, limit_ms=600_000)
            sampled = connection.execute(
                "SELECT embedding FROM hermes_memories WHERE log = %s AND kind = %s AND embedder = %s"
                " ORDER BY md5(id::text) LIMIT %s",
                (log, kind, self._embedder[0], _SAMPLES),
            ).fetchall()
            for (vector,) in sampled:
                values = {"vector": vector, "log": log, "count": _SAMPLED_MATCHES}
                _plan(connection, exact=False)
                fast = [float(row[6]) for row in connection.execute(query, values).fetchall()]
                _plan(connection, exact=True)
                exact = [float(row[6]) for row in connection.execute(query, values).fetchall()]
                # Rows that are equally near are equally right.
                hits += sum(cosine >= exact[-1] - _EQUAL for cosine in fast)
                total += len(exact)
        return hits / total if total else 1.0

    def close(self) -> None:
        """Close the connections. A later call opens others."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close(timeout=1.0)

    def _count_indexable(self) -> dict[Kind, int]:
        with self._connect() as connection:
            query = "SELECT kind, count(*) FROM hermes_memories WHERE embedder = %s GROUP BY kind"
            return dict(connection.execute(query, (self._embedder[0],)).fetchall())

    def _check_embedder(self, connection: Connection) -> None:
        """Record the embedder if none is recorded; part of a transaction."""
        connection.execute(
            "INSERT INTO hermes_memory_embedder (name, dimension) VALUES (%s, %s) ON CONFLICT DO NOTHING",
            self._embedder,
        )
        found = connection.execute("SELECT name, dimension FROM hermes_memory_embedder FOR SHARE").fetchone()
        if found and tuple(found) != self._embedder:
            raise another_embedder((str(found[0]), int(found[1])), self._embedder)

    def _set_search(self, connection: Connection, *, limit_ms: int = _QUERY_MS) -> None:
        """Set the parameters of searches for the current transaction."""
        row = connection.execute(
            "SELECT set_config('hnsw.ef_search', %s, true), set_config('statement_timeout', %s, true), extversion"
            " FROM pg_extension WHERE extname = 'vector'",
            (str(EF_SEARCH), str(limit_ms)),
        ).fetchone()
        version = tuple(int(each) for each in str(row[2]).split(".")[:2]) if row else (0, 0)
        if version >= _ITERATIVE:
            connection.execute("SELECT set_config('hnsw.iterative_scan', 'strict_order', true)")

    def _compose(self, query: LiteralString, kind: Kind, **more: Any) -> Composed:
        """Fill in the constants without which no partial index is used."""
        from psycopg import sql

        name, dimension = self._embedder
        values = {"size": sql.Literal(dimension), "kind": sql.Literal(kind), "embedder": sql.Literal(name), **more}
        return sql.SQL(query).format(**values)

    def _index_name(self, kind: Kind) -> str:
        name, dimension = self._embedder
        return f"hermes_hnsw_{kind}_{hashlib.sha256(f'{name}/{dimension}'.encode()).hexdigest()[:8]}"

    def _index_names(self) -> set[str]:
        return {self._index_name(kind) for kind in KINDS}

    @contextlib.contextmanager
    def _connect(self) -> Generator[Connection]:
        """Use a connection of the pool.

        Raises:
            StoreUnavailable: there is none, or a statement failed.
        """
        with _translate():
            pool = self._open_pool()
            with pool.connection(timeout=_PATIENCE_S) as connection:
                yield connection

    @contextlib.contextmanager
    def _connect_once(self) -> Generator[Connection]:
        """Open a connection outside of the pool, for the schema."""
        require("memory", f"the database of {VARIABLE}")
        import psycopg

        with _translate(), psycopg.connect(self._url, autocommit=True, **_CONNECTION) as connection:  # type: ignore[arg-type]  # psycopg wants a type a keyword
            yield connection

    def _open_pool(self) -> ConnectionPool[Connection]:
        with self._lock:
            if self._pool is None:
                require("memory", f"the database of {VARIABLE}")
                from pgvector.psycopg import register_vector
                from psycopg_pool import ConnectionPool

                logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)  # its warnings repeat the URL's parts
                self._pool = ConnectionPool(
                    self._url,
                    kwargs={**_CONNECTION, "autocommit": True, "prepare_threshold": None},
                    min_size=0,
                    max_size=2,
                    max_idle=60.0,
                    reconnect_timeout=1.0,
                    num_workers=1,
                    configure=register_vector,
                    check=ConnectionPool.check_connection,
                    open=True,
                    name="hermes-memory",
                )
            return self._pool


@contextlib.contextmanager
def _translate() -> Generator[None]:
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        # The error's text may quote the URL; its type and the server's code do not.
        what = f"long-term memory: the database of {VARIABLE} does not answer ({describe_error(error)})"
        raise StoreUnavailable(what, remedy="hermes-exec memory doctor") from None


def _plan(connection: Connection, *, exact: bool) -> None:
    """Have the planner use the index, or read all rows."""
    for name in ("enable_indexscan", "enable_bitmapscan"):
        used = name == "enable_indexscan" and not exact
        connection.execute("SELECT set_config(%s, %s, true)", (name, "on" if used else "off"))


def _read_position(connection: Connection, key: str, *, lock: bool = False) -> int:
    query = "SELECT position FROM hermes_memory_positions WHERE log = %s"
    row = connection.execute(f"{query} FOR UPDATE" if lock else query, (key,)).fetchone()
    return int(row[0]) if row else 0


def _to_memory(row: tuple[Any, ...]) -> Memory:
    kind, text, source, at, origin, evidence = row[:6]
    return Memory(kind, text, source, at, origin, tuple(Source(str(each[0]), int(each[1])) for each in evidence))


def connect_or_refuse(url: str) -> PostgresStore:
    """Return the store of a URL.

    Raises:
        HermesError: the URL is empty.
    """
    if not url:
        raise HermesError(f"long-term memory: {VARIABLE} is not set", remedy='long_term = "exact" in [memory]')
    return PostgresStore(url)


def migrate(connection: psycopg.Connection[Any]) -> None:
    """Apply the migrations that the database lacks.

    Raises:
        HermesError: it has pgvector neither nor the right to add it, or a later version wrote it.
        psycopg.Error: the database failed; nothing was applied.
    """
    import psycopg

    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        found = connection.execute("SELECT to_regclass('hermes_memory_migrations') IS NOT NULL").fetchone()
        done = 0
        if found and found[0]:
            row = connection.execute("SELECT coalesce(max(number), 0) FROM hermes_memory_migrations").fetchone()
            done = int(row[0]) if row else 0
        if done > len(MIGRATIONS):
            raise HermesError(
                f"long-term memory: the database has migration {done}, and this version knows {len(MIGRATIONS)}",
                remedy="a later version of hermes_exec",
            )
        if not done:
            try:
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            except (psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported,
                    psycopg.errors.UndefinedFile):  # fmt: skip
                raise HermesError(
                    "long-term memory: the database lacks vector", remedy="CREATE EXTENSION vector, as its owner"
                ) from None
            connection.execute(
                "CREATE TABLE hermes_memory_migrations (number integer PRIMARY KEY, at timestamptz DEFAULT now())"
            )
        for number, statements in enumerate(MIGRATIONS[done:], done + 1):
            connection.execute(statements)
            connection.execute("INSERT INTO hermes_memory_migrations (number) VALUES (%s)", (number,))
