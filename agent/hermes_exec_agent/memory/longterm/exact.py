"""A store without a server: SQLite for rows and vectors, NumPy for exact cosines.

The vectors of a log are kept in memory until the file changes. Of turns, whose texts never change, only new ones are
read then. A damaged file is moved aside, and a new one is built from the event log.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import sqlite3
import threading
from typing import TYPE_CHECKING, Any, TypeVar, cast

from hermes_exec.config.paths import make_private_folder, to_printable
from hermes_exec.errors import HermesError
from hermes_exec_agent.database_files import create_private, is_shared
from hermes_exec_agent.memory.entries import Source
from hermes_exec_agent.memory.longterm.memory import KINDS, Memory
from hermes_exec_agent.memory.longterm.store import PARTS, StoreUnavailable, another_embedder, name_position

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from hermes_exec_agent.memory.longterm.memory import Kind
    from hermes_exec_agent.memory.longterm.store import Batch, Part

T = TypeVar("T")
_log = logging.getLogger("hermes_exec.agent")
_APPLICATION = 0x68784D45
_VERSION = 2
_PATIENCE_S = 20.0
_SCHEMA = f"""
BEGIN IMMEDIATE;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
CREATE TABLE IF NOT EXISTS memories (
    id INTEGER PRIMARY KEY,
    log TEXT NOT NULL,
    source TEXT NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    at REAL NOT NULL,
    origin TEXT NOT NULL,
    evidence TEXT NOT NULL,
    embedder TEXT NOT NULL,
    vector BLOB NOT NULL,
    UNIQUE (log, source)
) STRICT;
CREATE INDEX IF NOT EXISTS memories_by_kind ON memories (log, kind, embedder);
CREATE TABLE IF NOT EXISTS positions (log TEXT PRIMARY KEY, position INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS embedder (
    one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL, dimension INTEGER NOT NULL
) STRICT;
COMMIT;
"""
_UPSERT = """
INSERT INTO memories (log, source, kind, text, at, origin, evidence, embedder, vector) VALUES (?,?,?,?,?,?,?,?,?)
ON CONFLICT (log, source) DO UPDATE SET at = iif(text = excluded.text, at, excluded.at), text = excluded.text,
    kind = excluded.kind, origin = excluded.origin, evidence = excluded.evidence, embedder = excluded.embedder,
    vector = excluded.vector
"""
_DAMAGES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class ExactStore:
    """Memories in one file of this user."""

    def __init__(self, path: Path) -> None:
        """``path`` is created with the first row, for this user alone."""
        self.path = path
        self._lock = threading.RLock()
        self._base: sqlite3.Connection | None = None
        self._file = 0
        """The inode of the open file."""
        self._embedder: tuple[str, int] = ("", 0)
        self._writes = 0
        self._cache: dict[tuple[str, Kind], tuple[tuple[int, int], list[int], NDArray[np.float32]]] = {}
        """Of each kind: the state of the file, the numbers of the rows, and their vectors."""

    def prepare(self, embedder: str, dimension: int) -> None:
        """Create the file, and record the embedder; see `MemoryStore.prepare`."""
        self._embedder = (embedder, dimension)

        def record(base: sqlite3.Connection) -> None:
            _check_embedder(base, self._embedder)

        self._run(record, writes=True)

    def adopt(self, embedder: str, dimension: int) -> None:
        """Record another embedder; see `MemoryStore.adopt`."""

        def record(base: sqlite3.Connection) -> None:
            base.execute("INSERT OR REPLACE INTO embedder VALUES (1, ?, ?)", (embedder, dimension))

        self._run(record, writes=True)
        self._embedder = (embedder, dimension)

    def position(self, log: str, part: Part = "memories") -> int:
        """Return a position of a log."""
        return self._run(lambda base: _read_position(base, name_position(log, part)))

    def write(self, log: str, batch: Batch) -> bool:
        """Apply a batch; see `MemoryStore.write`."""
        name, key = self._embedder[0], name_position(log, batch.part)
        rows = [
            (log, each.source, each.kind, each.text, each.at, each.origin, _to_json(each), name, vector.tobytes())
            for each, vector in zip(batch.memories, batch.vectors, strict=True)
        ]

        def apply(base: sqlite3.Connection) -> bool:
            _check_embedder(base, self._embedder)
            if _read_position(base, key) != batch.after:
                return False
            base.executemany(_UPSERT, rows)
            for kind, sources in batch.keep.items():
                found = base.execute("SELECT source FROM memories WHERE log = ? AND kind = ?", (log, kind)).fetchall()
                gone = [(log, source) for (source,) in found if source not in sources]
                base.executemany("DELETE FROM memories WHERE log = ? AND source = ?", gone)
            base.execute("INSERT OR REPLACE INTO positions VALUES (?, ?)", (key, batch.upto))
            return True

        return self._run(apply, writes=True)

    def nearest(
        self, log: str, vector: NDArray[np.float32], kinds: Sequence[Kind], count: int
    ) -> list[tuple[Memory, float]]:
        """Return the nearest memories of each kind."""
        return self._run(lambda base: [each for kind in kinds for each in self._scan(base, log, kind, vector, count)])

    def _scan(
        self, base: sqlite3.Connection, log: str, kind: Kind, vector: NDArray[np.float32], count: int
    ) -> list[tuple[Memory, float]]:
        import numpy as np

        ids, vectors = self._load(base, log, kind)
        if not ids:
            return []
        cosines = vectors @ vector
        most = min(count, len(ids))
        best = np.argpartition(-cosines, most - 1)[:most]
        ordered = best[np.argsort(-cosines[best], kind="stable")]
        return [(_read_memory(base, ids[int(at)]), float(cosines[at])) for at in ordered]

    def _load(self, base: sqlite3.Connection, log: str, kind: Kind) -> tuple[list[int], NDArray[np.float32]]:
        """Return the numbers and vectors of a kind, from memory if the file has not changed."""
        import numpy as np

        (changed,) = base.execute("PRAGMA data_version").fetchone()
        version = (int(changed), self._writes)
        known = self._cache.get((log, kind))
        if known is not None and known[0] == version:
            return known[1], known[2]
        keys = (log, kind, self._embedder[0])
        ids, vectors = list[int](), np.empty((0, self._embedder[1]), dtype=np.float32)
        if known is not None and kind == "turn" and _is_unchanged(base, keys, known[1]):
            ids, vectors = known[1], known[2]
        rows = base.execute(
            "SELECT id, vector FROM memories WHERE log = ? AND kind = ? AND embedder = ? AND id > ? ORDER BY id",
            (*keys, ids[-1] if ids else 0),
        ).fetchall()
        if rows:
            new = np.frombuffer(b"".join(row[1] for row in rows), dtype=np.float32)
            vectors = np.concatenate([vectors, new.reshape(len(rows), self._embedder[1])])
            ids = ids + [int(row[0]) for row in rows]
        self._cache[log, kind] = (version, ids, vectors)
        return ids, vectors

    def texts(self, log: str, kind: Kind) -> dict[str, str]:
        """Return the texts of a kind by their sources."""
        query = "SELECT source, text FROM memories WHERE log = ? AND kind = ?"
        return self._run(lambda base: dict(base.execute(query, (log, kind)).fetchall()))

    def count(self, log: str = "") -> dict[Kind, int]:
        """Count the rows of each kind."""
        query = "SELECT kind, count(*) FROM memories WHERE ? IN ('', log) GROUP BY kind"
        found = self._run(lambda base: dict(base.execute(query, (log,)).fetchall()))
        return {kind: int(found.get(kind, 0)) for kind in KINDS}

    def list_stale(self, limit: int) -> list[tuple[int, str]]:
        """Return rows with vectors of another embedder."""
        query = "SELECT id, text FROM memories WHERE embedder <> (SELECT name FROM embedder) ORDER BY id LIMIT ?"
        return self._run(lambda base: base.execute(query, (limit,)).fetchall())

    def count_stale(self) -> int:
        """Count these rows."""
        query = "SELECT count(*) FROM memories WHERE embedder <> (SELECT name FROM embedder)"
        return self._run(lambda base: int(base.execute(query).fetchone()[0]))

    def replace_vectors(self, rows: Sequence[tuple[int, str]], vectors: NDArray[np.float32]) -> None:
        """Give these rows new vectors."""
        values = [(self._embedder[0], vector.tobytes(), *row) for row, vector in zip(rows, vectors, strict=True)]

        def replace(base: sqlite3.Connection) -> None:
            _check_embedder(base, self._embedder)
            base.executemany("UPDATE memories SET embedder = ?, vector = ? WHERE id = ? AND text = ?", values)

        self._run(replace, writes=True)

    def forget(self, log: str) -> None:
        """Remove all rows of a log, and its positions."""
        keys = [(name_position(log, part),) for part in PARTS]

        def remove(base: sqlite3.Connection) -> None:
            base.execute("DELETE FROM memories WHERE log = ?", (log,))
            base.executemany("DELETE FROM positions WHERE log = ?", keys)

        self._run(remove, writes=True)

    def maintain(self) -> None:
        """Do nothing: every search is exact."""

    def close(self) -> None:
        """Close the file. A later call opens it again."""
        with self._lock:
            base, self._base = self._base, None
            self._cache.clear()
            if base is not None:
                base.close()

    def _run(self, work: Callable[[sqlite3.Connection], T], *, writes: bool = False) -> T:
        """Run ``work`` in a transaction; on a damaged file once more, after that was moved aside."""
        with self._lock:
            for again in (True, False):
                try:
                    return self._transact(work, writes=writes)
                except sqlite3.Error as error:
                    if not again or not _is_damage(error):
                        raise StoreUnavailable(f"{to_printable(self.path)}: {error}") from error
                except OSError as error:
                    raise StoreUnavailable(f"{to_printable(self.path)}: {error.strerror}") from error
                self._set_aside()
            raise AssertionError  # the second round returned or raised

    def _transact(self, work: Callable[[sqlite3.Connection], T], *, writes: bool) -> T:
        base = self._open()
        base.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        try:
            result = work(base)
            base.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                base.execute("ROLLBACK")
            raise
        self._writes += writes
        return result

    def _open(self) -> sqlite3.Connection:
        if self._base is None:
            make_private_folder(self.path.parent)
            if self.path.is_symlink():
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            create_private(self.path)
            self._file = self.path.lstat().st_ino
            base = sqlite3.connect(self.path, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False)
            try:
                self._create(base)
            except BaseException:
                base.close()
                raise
            self._base = base
        return self._base

    def _create(self, base: sqlite3.Connection) -> None:
        (application,) = base.execute("PRAGMA application_id").fetchone()
        (version,) = base.execute("PRAGMA user_version").fetchone()
        if (application, version) not in {(0, 0), (_APPLICATION, 1), (_APPLICATION, _VERSION)}:
            raise HermesError(f"{to_printable(self.path)}: it is not a long-term memory, or one of a later version")
        base.execute(f"PRAGMA journal_mode = {'DELETE' if is_shared(self.path.parent) else 'WAL'}")
        base.execute("PRAGMA trusted_schema = OFF")
        base.execute("PRAGMA synchronous = NORMAL")
        if version < _VERSION:
            base.executescript(_SCHEMA)

    def _set_aside(self) -> None:
        """Move a damaged file aside, unless another program did so before."""
        self.close()
        aside = self.path.with_suffix(".damaged")
        with self._hold_lock():
            if self.path.exists() and self.path.stat().st_ino == self._file:
                self.path.replace(aside)
                for ending in ("-wal", "-shm"):
                    self.path.with_name(self.path.name + ending).unlink(missing_ok=True)
                _log.warning("%s is damaged: kept as %s, and built again", to_printable(self.path), aside.name)

    @contextlib.contextmanager
    def _hold_lock(self) -> Generator[None]:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(self.path.with_suffix(".lock"), flags, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _is_damage(error: sqlite3.Error) -> bool:
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _DAMAGES


def _check_embedder(base: sqlite3.Connection, embedder: tuple[str, int]) -> None:
    """Record the embedder if none is recorded; part of a transaction that writes.

    Raises:
        AnotherEmbedder: another one is.
    """
    base.execute("INSERT OR IGNORE INTO embedder VALUES (1, ?, ?)", embedder)
    found = cast("tuple[str, int]", base.execute("SELECT name, dimension FROM embedder").fetchone())
    if found != embedder:
        raise another_embedder(found, embedder)


def _read_position(base: sqlite3.Connection, key: str) -> int:
    row = base.execute("SELECT position FROM positions WHERE log = ?", (key,)).fetchone()
    return int(row[0]) if row else 0


def _is_unchanged(base: sqlite3.Connection, keys: tuple[str, str, str], ids: Sequence[int]) -> bool:
    """Whether the rows up to the last of these are these."""
    if not ids:
        return True
    query = "SELECT count(*), sum(id) FROM memories WHERE log = ? AND kind = ? AND embedder = ? AND id <= ?"
    found = base.execute(query, (*keys, ids[-1])).fetchone()
    return bool(found == (len(ids), sum(ids)))


def _read_memory(base: sqlite3.Connection, number: int) -> Memory:
    query = "SELECT kind, text, source, at, origin, evidence FROM memories WHERE id = ?"
    kind, text, source, at, origin, evidence = base.execute(query, (number,)).fetchone()
    return Memory(kind, text, source, at, origin, parse_evidence(json.loads(evidence)))


def parse_evidence(records: Sequence[Sequence[Any]]) -> tuple[Source, ...]:
    """Return the events in a row."""
    return tuple(Source(str(each[0]), int(each[1])) for each in records)


def _to_json(memory: Memory) -> str:
    return json.dumps([[each.conversation, each.number] for each in memory.evidence])
