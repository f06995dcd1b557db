"""A lock on the turn of a conversation, also between machines that share the log.

The holder is a row of the database: its process, and when its lease ends unless it is renewed. Locks of files and
process numbers mean nothing between machines, while a row that is read and written in one transaction does. Each holder
has a generation of its own, and an event is recorded under the newest generation only, in the same transaction. So a
program that slept past its lease writes nothing once another program holds the turn.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import HermesError, UsageError
from hermes_exec.guest.core import orphan_cleanup, process_tree
from hermes_exec.pool.owner import Liveness, Owner

if TYPE_CHECKING:
    import sqlite3

LEASE_S = 60.0
"""Seconds after which a holder on another machine that did not renew its lease counts as gone."""
_TABLE = """
CREATE TABLE IF NOT EXISTS turns (
    conversation TEXT PRIMARY KEY,
    generation INTEGER NOT NULL,
    holder TEXT NOT NULL,
    until REAL NOT NULL
) STRICT
"""


class TurnHeld(UsageError):
    """Another program holds the turn of the conversation; nothing was recorded, and nothing ran."""


class TurnLost(HermesError):
    """Another program took the turn over, after this one did not renew its lease; nothing more is recorded."""

    state = "what was recorded before stays recorded"


@dataclass(frozen=True, slots=True)
class TurnLock:
    """The right to record a turn of ``conversation``."""

    conversation: str
    generation: int
    lease_s: float


@dataclass(frozen=True, slots=True)
class _Row:
    generation: int
    holder: str
    """An `Owner` as JSON; empty while no turn runs."""
    until: float

    @property
    def owner(self) -> Owner | None:
        try:
            return Owner.from_values(json.loads(self.holder))
        except (TypeError, ValueError, RecursionError):
            return None

    @property
    def is_held(self) -> bool:
        """Whether the holder may still be alive.

        On this machine the process itself decides: while it runs it holds its turn, however late it is, and while it is
        stopped (SIGSTOP, Ctrl-Z) it holds the turn for the length of its lease. On other machines only the lease is
        known.
        """
        if not self.holder:
            return False
        owner = self.owner
        if owner is not None and owner.boot == orphan_cleanup.boot_id():
            life = owner.liveness
            if life is Liveness.DEAD:
                return False
            if life is Liveness.LIVING and process_tree.stat(owner.pid)[0] not in {b"T", b"t"}:
                return True
        return time.time() < self.until

    def __str__(self) -> str:
        owner = self.owner
        if owner is None:
            return "another program"
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(owner.since))
        return f"process {owner.pid} on {to_printable(owner.host)}, since {since}"


def prepare(base: sqlite3.Connection) -> None:
    """Create the table if it is missing, as in a log of an earlier version; part of a transaction that writes."""
    base.execute(_TABLE)


def acquire(base: sqlite3.Connection, conversation: str, lease_s: float) -> TurnLock:
    """Hold the turn; part of a transaction.

    Raises:
        TurnHeld: another holder may still live.
    """
    row = _read_row(base, conversation)
    if row is not None and row.is_held:
        raise _turn_held_error(conversation, row)
    lock = TurnLock(conversation, row.generation + 1 if row else 1, lease_s)
    base.execute(
        "INSERT INTO turns (conversation, generation, holder, until) VALUES (?, ?, ?, ?) ON CONFLICT (conversation)"
        " DO UPDATE SET generation = excluded.generation, holder = excluded.holder, until = excluded.until",
        (conversation, lock.generation, json.dumps(Owner.current().values), time.time() + lease_s),
    )
    return lock


def renew(base: sqlite3.Connection, lock: TurnLock) -> None:
    """Renew the lease; part of a transaction.

    Raises:
        TurnLost: another program holds the turn now, or held it meanwhile.
    """
    check(base, lock.conversation, lock)
    base.execute("UPDATE turns SET until = ? WHERE conversation = ?", (time.time() + lock.lease_s, lock.conversation))


def release(base: sqlite3.Connection, lock: TurnLock) -> None:
    """Release the turn; a lost lock changes nothing. Part of a transaction."""
    base.execute(
        "UPDATE turns SET holder = '' WHERE conversation = ? AND generation = ?", (lock.conversation, lock.generation)
    )


def check(base: sqlite3.Connection, conversation: str, lock: TurnLock | None) -> None:
    """Check that an event may be recorded; part of the transaction that records it.

    Raises:
        TurnHeld: without a lock: a turn runs.
        TurnLost: another program holds the turn now, or held it meanwhile.
    """
    row = _read_row(base, conversation)
    if lock is None:
        if row is not None and row.is_held:
            raise _turn_held_error(conversation, row)
    elif row is None or row.generation != lock.generation:
        by = f" ({row})" if row is not None and row.holder else ""
        raise TurnLost(
            f"conversation {to_printable(conversation)}: this turn ends, because another program{by} took the"
            f" conversation over while this one stood still for longer than {lock.lease_s:g} s",
            remedy="the same request again, which goes on from what is recorded now",
        )


def refuse_held(base: sqlite3.Connection, conversation: str) -> None:
    """Check that no turn runs; nothing is written.

    Raises:
        TurnHeld: a turn runs.
    """
    there = base.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'turns'").fetchone() == (1,)
    if there and (row := _read_row(base, conversation)) is not None and row.is_held:
        raise _turn_held_error(conversation, row)


def _read_row(base: sqlite3.Connection, conversation: str) -> _Row | None:
    row = base.execute("SELECT generation, holder, until FROM turns WHERE conversation = ?", (conversation,)).fetchone()
    return None if row is None else _Row(*row)


def _turn_held_error(conversation: str, row: _Row) -> TurnHeld:
    return TurnHeld(
        f"conversation {to_printable(conversation)}: a turn of it runs in {row}",
        remedy="again when that has ended, or a branch of what is recorded: --fork, in a chat /branch",
    )
