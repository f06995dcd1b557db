"""Counters of the runs of each version, for people, and to quarantine those that fail repeatedly. They are unsigned.

A guide does not run: reading it and running its scripts are counted as its uses.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import statistics
import time
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError
from hermes_exec_agent.database_files import create_private

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

_log = logging.getLogger("hermes_exec.skills")
_PATIENCE_S = 10.0
_LATEST = 100
"""Runs whose durations are kept."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS versions (
    name TEXT, version INTEGER, runs INTEGER, failures INTEGER, in_a_row INTEGER, last REAL, PRIMARY KEY (name, version)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS models (
    name TEXT, version INTEGER, model TEXT, runs INTEGER, failures INTEGER, PRIMARY KEY (name, version, model)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS latest (number INTEGER PRIMARY KEY, name TEXT, version INTEGER, seconds REAL) STRICT;
CREATE TABLE IF NOT EXISTS uses (name TEXT PRIMARY KEY, uses INTEGER, last REAL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS since (at REAL) STRICT;
CREATE INDEX IF NOT EXISTS latest_of ON latest (name, version, number);
"""
_COUNT = """
INSERT INTO versions VALUES (:name, :version, 1, :failed, :failed, :now) ON CONFLICT DO UPDATE SET
    runs = runs + 1, failures = failures + :failed, in_a_row = iif(:failed, in_a_row + 1, 0), last = :now
"""
_COUNT_MODEL = """
INSERT INTO models VALUES (:name, :version, :model, 1, :failed) ON CONFLICT DO UPDATE SET
    runs = runs + 1, failures = failures + :failed
"""
_COUNT_USE = """
INSERT INTO uses VALUES (:name, 1, :now) ON CONFLICT DO UPDATE SET uses = uses + 1, last = :now
"""
_READ_USES = """
SELECT name, sum(number), max(last) FROM (
    SELECT name, runs AS number, last FROM versions UNION ALL SELECT name, uses, last FROM uses
) GROUP BY name
"""
_MERGE = {
    "versions": "ON CONFLICT DO UPDATE SET failures = excluded.failures, in_a_row = excluded.in_a_row,"
    " last = excluded.last, runs = excluded.runs WHERE excluded.runs > runs",
    "models": "ON CONFLICT DO UPDATE SET failures = excluded.failures, runs = excluded.runs WHERE excluded.runs > runs",
    "uses": "ON CONFLICT DO UPDATE SET last = excluded.last, uses = excluded.uses WHERE excluded.uses > uses",
    "latest": "ON CONFLICT DO NOTHING",
}
"""How the rows of each table are merged: the counter that has counted more wins."""
_FORGET = """
DELETE FROM latest WHERE name = :name AND version = :version AND number <= (
    SELECT number FROM latest WHERE name = :name AND version = :version ORDER BY number DESC LIMIT 1 OFFSET :kept
)
"""


@dataclass(frozen=True, slots=True)
class RunCounts:
    """The runs of a version."""

    runs: int = 0
    failures: int = 0
    in_a_row: int = 0
    """Failures since the last success."""
    median_s: float | None = None
    """Of the latest runs that succeeded."""
    slowest_s: float | None = None
    last: float | None = None
    """Seconds since 1970."""
    by_model: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Runs and failures by the model that requested them; a person's are under an empty name."""

    def facts(self) -> dict[str, Any]:
        """Return the fields for programs."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Uses:
    """The uses of all skills: runs of functions, and reads and script runs of guides."""

    since: float | None = None
    """When counting began, in seconds since 1970; None if nothing was ever counted."""
    by_name: Mapping[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])
    """The number of uses, and the time of the last one."""


class RunCounter:
    """The counters of one registry."""

    def __init__(self, path: Path) -> None:
        """``path`` is created with the first run."""
        self._path = path

    def count(self, name: str, version: int, seconds: float, kind: str, model: str = "") -> RunCounts:
        """Count a run; ``kind`` is that of its failure, or empty. Return the counters with it.

        ``model`` is the one that requested it, or empty if a person did.

        Raises:
            HermesError: it cannot be written.
        """
        values = {
            "name": name, "version": version, "seconds": seconds, "failed": int(bool(kind)), "model": model,
            "now": time.time(), "kept": _LATEST,
        }  # fmt: skip
        with self._open(make=True) as base:
            base.execute("BEGIN IMMEDIATE")
            base.execute(_COUNT, values)
            base.execute(_COUNT_MODEL, values)
            if not kind:
                base.execute("INSERT INTO latest VALUES (NULL, :name, :version, :seconds)", values)
                base.execute(_FORGET, values)
            counted = _read_counts(base, name, version)
            base.execute("COMMIT")
        return counted

    def read(self, name: str, version: int) -> RunCounts:
        """Return the counters of a version.

        Raises:
            HermesError: they cannot be read.
        """
        if not self._path.exists():
            return RunCounts()
        with self._open(make=False) as base:
            return _read_counts(base, name, version)

    def count_use(self, name: str) -> None:
        """Count that a guide was read, or that a script of it ran.

        Raises:
            HermesError: it cannot be written.
        """
        with self._open(make=True) as base:
            base.execute(_COUNT_USE, {"name": name, "now": time.time()})

    def read_uses(self, *, begin: bool = False) -> Uses:
        """Return the uses of all skills; ``begin`` starts to count if nothing was ever counted.

        Raises:
            HermesError: they cannot be read.
        """
        if not begin and not self._path.exists():
            return Uses()
        with self._open(make=True) as base:
            (since,) = base.execute("SELECT min(at) FROM since").fetchone()
            rows = base.execute(_READ_USES).fetchall()
        return Uses(since, {name: (number, last or 0.0) for name, number, last in rows})

    def dump(self) -> dict[str, list[list[Any]]]:
        """Return the rows of every table with counters.

        Raises:
            HermesError: they cannot be read.
        """
        if not self._path.exists():
            return {}
        with self._open(make=True) as base:
            return {table: [list(row) for row in base.execute(f"SELECT * FROM {table}")] for table in _MERGE}  # noqa: S608  our own names

    def merge(self, rows: Mapping[str, list[list[Any]]]) -> None:
        """Bring back the rows that ``dump`` returned; counters that have counted more since then stay.

        Raises:
            HermesError: they cannot be written.
        """
        with self._open(make=True) as base:
            base.execute("BEGIN IMMEDIATE")
            for table, how in _MERGE.items():
                for row in rows.get(table, ()):
                    marks = ", ".join("?" * len(row))
                    base.execute(f"INSERT INTO {table} VALUES ({marks}) {how}", row)  # noqa: S608  our own names
            base.execute("COMMIT")

    @contextlib.contextmanager
    def _open(self, *, make: bool) -> Generator[sqlite3.Connection]:
        try:
            if make and not self._path.exists():
                create_private(self._path)
            address = f"{self._path.as_uri()}?mode=rw"
            with closing(sqlite3.connect(address, uri=True, timeout=_PATIENCE_S, isolation_level=None)) as base:
                base.execute("PRAGMA journal_mode = DELETE")
                base.execute("PRAGMA synchronous = OFF")  # counters need not survive a power failure
                if make:
                    base.executescript(_SCHEMA)
                    base.execute("INSERT INTO since SELECT ? WHERE NOT EXISTS (SELECT 1 FROM since)", (time.time(),))
                yield base
        except (sqlite3.Error, OSError) as error:
            raise HermesError(
                f"{self._path}: runs cannot be counted: {error}",
                remedy="move it away; it holds counts alone",
                state="the run itself is not concerned",
            ) from error


def count_use(counts: Path, name: str) -> None:
    """Count a use of a guide in the database ``counts``; a failure is only logged, as the use does not depend on it."""
    try:
        RunCounter(counts).count_use(name)
    except HermesError as error:
        _log.warning("%s", error)


def _read_counts(base: sqlite3.Connection, name: str, version: int) -> RunCounts:
    key = (name, version)
    row = base.execute(
        "SELECT runs, failures, in_a_row, last FROM versions WHERE name = ? AND version = ?", key
    ).fetchone()
    if row is None:
        return RunCounts()
    latest = base.execute("SELECT seconds FROM latest WHERE name = ? AND version = ?", key).fetchall()
    models = base.execute("SELECT model, runs, failures FROM models WHERE name = ? AND version = ?", key).fetchall()
    seconds = [each for (each,) in latest]
    runs, failures, in_a_row, last = row
    return RunCounts(
        runs=runs,
        failures=failures,
        in_a_row=in_a_row,
        median_s=statistics.median(seconds) if seconds else None,
        slowest_s=max(seconds, default=None),
        last=last,
        by_model={model: (total, failed) for model, total, failed in models},
    )
