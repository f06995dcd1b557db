"""The schema of long-term memory in PostgreSQL: numbered migrations, each applied once.

All of them run in one transaction under an advisory lock, so that several programs that start at once do not collide.
A migration that was released is never changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, LiteralString

from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    import psycopg

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
