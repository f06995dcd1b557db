"""How the runs of each version went: for people, and to keep back what fails again and again. It is not signed."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import statistics
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_PATIENCE_S = 10.0
_LATEST = 100
"""Runs that latencies are told of."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    at REAL NOT NULL,
    seconds REAL NOT NULL,
    kind TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS runs_of ON runs (name, version, number);
"""


@dataclass(frozen=True, slots=True)
class Counts:
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

    def facts(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


class Runs:
    """The runs of one registry."""

    def __init__(self, path: Path) -> None:
        """``path`` is made when the first run is counted."""
        self._path = path

    def count(self, name: str, version: int, seconds: float, kind: str) -> Counts:
        """Count a run; ``kind`` is that of its failure, or nothing. Gives the counts with it.

        Raises:
            HermesError: it cannot be written.
        """
        with self._open(make=True) as base:
            base.execute(
                "INSERT INTO runs (name, version, at, seconds, kind) VALUES (?, ?, ?, ?, ?)",
                (name, version, time.time(), seconds, kind),
            )
            return _counts(base, name, version)

    def of(self, name: str, version: int) -> Counts:
        """The counts of a version.

        Raises:
            HermesError: they cannot be read.
        """
        if not self._path.exists():
            return Counts()
        with self._open(make=False) as base:
            return _counts(base, name, version)

    @contextlib.contextmanager
    def _open(self, *, make: bool) -> Generator[sqlite3.Connection]:
        try:
            if make and not self._path.exists():
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            address = f"{self._path.as_uri()}?mode=rw"
            with closing(sqlite3.connect(address, uri=True, timeout=_PATIENCE_S, isolation_level=None)) as base:
                base.execute("PRAGMA journal_mode = DELETE")
                if make:
                    base.executescript(_SCHEMA)
                yield base
        except (sqlite3.Error, OSError) as error:
            raise HermesError(
                f"{self._path}: runs cannot be counted: {error}",
                remedy="move it away; it holds counts alone",
                state="the run itself is not concerned",
            ) from error


def _counts(base: sqlite3.Connection, name: str, version: int) -> Counts:
    key = (name, version)
    runs, failures, last = base.execute(
        "SELECT count(*), coalesce(sum(kind != ''), 0), max(at) FROM runs WHERE name = ? AND version = ?", key
    ).fetchone()
    ((good,),) = base.execute(
        "SELECT coalesce(max(number), 0) FROM runs WHERE name = ? AND version = ? AND kind = ''", key
    ).fetchall()
    ((in_a_row,),) = base.execute(
        "SELECT count(*) FROM runs WHERE name = ? AND version = ? AND number > ?", (*key, good)
    ).fetchall()
    latest = base.execute(
        "SELECT seconds FROM runs WHERE name = ? AND version = ? AND kind = '' ORDER BY number DESC LIMIT ?",
        (*key, _LATEST),
    ).fetchall()
    seconds = [each for (each,) in latest]
    return Counts(
        runs=runs,
        failures=failures,
        in_a_row=in_a_row,
        median_s=statistics.median(seconds) if seconds else None,
        slowest_s=max(seconds, default=None),
        last=last,
    )
