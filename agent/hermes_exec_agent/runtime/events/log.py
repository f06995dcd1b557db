"""The log of conversations: events are appended, and never changed or removed.

Each conversation numbers its events without gaps. A program that resumes one holds its turn (`turn_lock`), and names
the event that it believes to be the last, so that two programs never continue one conversation at once.
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self, TypeVar

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import HermesError, UsageError
from hermes_exec.observe.redact import Redactor
from hermes_exec_agent.runtime.events import queries, recovery, search_index, storage, turn_lock
from hermes_exec_agent.runtime.events.event import Event, is_stream
from hermes_exec_agent.runtime.events.storage import conversations_file, log_exists

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from hermes_exec_agent.runtime.events.event import Kind
    from hermes_exec_agent.runtime.events.queries import Summary
    from hermes_exec_agent.runtime.events.search import SearchFilter, SearchHit
    from hermes_exec_agent.runtime.events.turn_lock import TurnLock

T = TypeVar("T")
_BATCH = 500
"""Events that are added to the index in one transaction."""
_FILL_S = 1.0
"""How long a search indexes events of an earlier version."""
_MOST_IDS = 100
"""Ids that a beginning is compared with."""
_REPAIRS = 6
"""Repairs of one call: each table of the index, and the file."""


class Conflict(HermesError):
    """Another program continued the conversation; nothing was recorded."""


def new_id() -> str:
    """Return an id for a conversation: its start time and a random part. Ids sort by time."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


def _read_last(base: sqlite3.Connection, conversation: str) -> int:
    """Return the number of the last event, or 0."""
    (number,) = base.execute("SELECT max(number) FROM events WHERE conversation = ?", (conversation,)).fetchone()
    return number or 0


def _read_events(base: sqlite3.Connection, conversation: str, since: int) -> list[Event]:
    """Return the events after ``since``, in order."""
    rows = base.execute(
        "SELECT number, at, kind, data FROM events WHERE conversation = ? AND number > ? ORDER BY number",
        (conversation, since),
    ).fetchall()
    return [Event(conversation, number, at, kind, json.loads(data)) for number, at, kind, data in rows]


def _json(data: Mapping[str, Any]) -> str:
    """Return text that a database can hold: half of a surrogate pair, which a model may send, is escaped."""
    text = json.dumps(dict(data), ensure_ascii=False, separators=(",", ":"))
    return text if _encodable(text) else json.dumps(dict(data), separators=(",", ":"))


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _insert(base: sqlite3.Connection, conversation: str, number: int, at: float, kind: Kind, text: str) -> Event:
    seq = base.execute(
        "INSERT INTO events (conversation, number, at, kind, data) VALUES (?, ?, ?, ?, ?)",
        (conversation, number, at, kind, text),
    ).lastrowid
    data: dict[str, Any] = json.loads(text)
    search_index.index_event(base, seq or 0, kind, data)
    return Event(conversation, number, at, kind, data)


class EventLog:
    """One log. Threads may share it; each call is short, and safe against kills at any moment."""

    def __init__(self, path: Path, *, redactor: Redactor | None = None) -> None:
        """``path`` is created with the first event, for this user alone. ``redactor`` removes keys from events."""
        self.path = path
        self._redactor = redactor or Redactor()
        self._lock = threading.Lock()
        self._base: sqlite3.Connection | None = None
        self._inode: int | None = None
        self._prepared = False
        """Whether this connection found, or created, all tables."""
        self._executor: ThreadPoolExecutor | None = None

    @classmethod
    def of_user(cls, environ: Mapping[str, str] | None = None, *, redactor: Redactor | None = None) -> EventLog:
        """Return the user's log; see `conversations_file`."""
        return cls(conversations_file(environ), redactor=redactor)

    def append(self, conversation: str, kind: Kind, data: Mapping[str, Any], *, after: int | None = None) -> Event:
        """Record an event; it lasts when this returns, and is never recorded in part.

        Args:
            conversation: its id.
            kind: see `Kind`.
            data: of the event, in JSON's types.
            after: the expected number of the last event.

        Raises:
            Conflict: there are events after ``after``.
            HermesError: nothing could be recorded.
        """
        return self.append_all(conversation, [(kind, data)], after=after)[0]

    def append_all(
        self,
        conversation: str,
        events: Sequence[tuple[Kind, Mapping[str, Any]]],
        *,
        after: int | None = None,
        turn: TurnLock | None = None,
    ) -> list[Event]:
        """Record several events at once, under ``turn`` if one is held: all of them, or none. See `append`.

        Raises:
            TurnLost: another program holds ``turn`` now.
            TurnHeld: without ``turn``: another program holds it.
        """
        at = time.time()
        texts: list[tuple[Kind, str]] = [(kind, self._redactor.redact(_json(data))) for kind, data in events]

        def add(base: sqlite3.Connection) -> list[Event]:
            turn_lock.check(base, conversation, turn)
            last = _read_last(base, conversation)
            if after is not None and last != after:
                raise Conflict(
                    f"conversation {to_printable(conversation)}: another program went on with it",
                    remedy="end that program, or resume this conversation from its record",
                )
            return [
                _insert(base, conversation, last + number, at, kind, text)
                for number, (kind, text) in enumerate(texts, 1)
            ]

        return self._write(add)

    def acquire_turn(self, conversation: str, lease_s: float = turn_lock.LEASE_S) -> TurnLock:
        """Hold the turn of a conversation until `release_turn`; renew it before ``lease_s`` seconds have passed.

        Raises:
            TurnHeld: another holder, in this program or in another one, may still be alive.
        """
        return self._write(lambda base: turn_lock.acquire(base, conversation, lease_s))

    def renew_turn(self, turn: TurnLock) -> None:
        """Renew the lease.

        Raises:
            TurnLost: another program holds it now, or held it meanwhile.
        """
        self._write(lambda base: turn_lock.renew(base, turn))

    def release_turn(self, turn: TurnLock) -> None:
        """Release the turn; safe for a lost one."""
        self._write(lambda base: turn_lock.release(base, turn))

    def refuse_held_turn(self, conversation: str) -> None:
        """Check that no turn of a conversation runs, before anything is opened for the next one.

        Raises:
            TurnHeld: a turn runs.
        """
        self._read(lambda base: turn_lock.refuse_held(base, conversation), None)

    def events(self, conversation: str, since: int = 0) -> list[Event]:
        """Return the events of a conversation after ``since``; none if the conversation does not exist."""
        return self._read(lambda base: _read_events(base, conversation, since), [])

    def last(self, conversation: str) -> int:
        """Return the number of a conversation's last event, or 0."""
        return self._read(lambda base: _read_last(base, conversation), 0)

    def first(self, conversation: str) -> Event | None:
        """Return the first event of a conversation; None if the conversation does not exist."""
        return self._read(lambda base: queries.read_first(base, conversation), None)

    def children(self) -> dict[str, list[str]]:
        """Return the conversations that others delegated tasks to, by the id of the delegating one; reads all."""
        return self._read(queries.list_children, dict[str, list[str]]())

    def targets(self) -> list[str]:
        """Return the targets of all conversations; reads all."""
        return self._read(queries.list_targets, list[str]())

    def streams(self, name: str) -> list[str]:
        """Return the ids of streams of memory that begin with ``name``, such as ``memory:``."""
        return self._read(lambda base: [id for id in queries.find_ids(base, name) if is_stream(id)], [])

    def find(self, beginning: str) -> str:
        """Return the id of the conversation that begins with ``beginning``.

        Raises:
            UsageError: no id does, or several do, or it is that of a stream of memory.
        """
        none: list[str] = []
        ids = self._read(lambda base: queries.find_ids(base, beginning, _MOST_IDS), none)
        found = [id for id in ids if not is_stream(id)]
        if ids and (not found or beginning in ids) and beginning not in found:
            raise UsageError(
                f"{to_printable(ids[0])} records what the agent remembers, and is not a conversation",
                remedy="hermes-exec conversations list",
            )
        if len(found) == 1 or beginning in found:
            return beginning if beginning in found else found[0]
        if not found:
            raise UsageError(f"no conversation {to_printable(beginning)}", remedy="hermes-exec conversations list")
        raise UsageError(f"several conversations begin with {to_printable(beginning)}: {', '.join(found[:5])}")

    def title(self, conversation: str) -> str:
        """Return the title of a conversation; see `Summary.title`."""
        return self._read(lambda base: queries.read_title(base, conversation), "")

    def conversations(self, limit: int = 50, before: str | None = None) -> list[Summary]:
        """Return the latest conversations; ``before`` is the id of the last one of the preceding page."""
        return self._read(lambda base: queries.list_conversations(base, limit, before), [])

    def cost_since(self, at: float) -> float:
        """Return the known cost, in US dollars, of all replies after a time; see `queries.sum_cost`."""
        return self._read(lambda base: queries.sum_cost(base, at), 0.0)

    def last_activity(self, apart_from: str = "") -> float | None:
        """Return the time of the last event of any conversation but ``apart_from``; None if there is none."""
        return self._read(lambda base: queries.last_activity(base, apart_from), None)

    def newest_ids(self, limit: int) -> list[str]:
        """Return the last ``limit`` ids of streams in their order, the journal and the notes among them."""
        return self._read(lambda base: queries.list_newest_ids(base, limit), [])

    def start(self, conversation: str) -> queries.Start:
        """Return the beginning of a conversation; its fields are empty if the conversation does not exist."""
        return self._read(lambda base: queries.read_start(base, conversation), queries.Start("", "", ""))

    def redact(self, text: str) -> str:
        """Return ``text`` without the keys that this log removes from events."""
        return self._redactor.redact(text)

    def reopen(self) -> EventLog:
        """Return the same log over a connection of its own, whose calls wait for no thread of this one."""
        return EventLog(self.path, redactor=self._redactor)

    def latest_note(self, conversation: str) -> Event | None:
        """Return the event of a conversation's latest note; None without any."""
        return self._read(lambda base: queries.read_note(base, conversation), None)

    def search(self, text: str, limit: int = 20, wanted: SearchFilter | None = None) -> list[SearchHit]:
        """Return events and notes that contain the words of ``text``, best first.

        Events of a log of an earlier version, whose index lacks a part, are indexed first, for a second at most.
        """
        if self._read(search_index.is_unfinished, False):
            with contextlib.suppress(HermesError):  # what is indexed is searched in a log that cannot be written
                self._fill(_FILL_S)
        from hermes_exec_agent.runtime.events import search  # takes long to import

        return self._read(lambda base: search.search(base, text, limit, wanted or search.SearchFilter()), [])

    def select(self, keys: Sequence[tuple[str, int]], text: str, wanted: SearchFilter) -> list[SearchHit]:
        """Return those of these events, by conversation and number, that a search for ``text`` may return, in order."""
        from hermes_exec_agent.runtime.events import search

        return self._read(lambda base: search.select(base, keys, text, wanted), [])

    def rebuild_index(self) -> int:
        """Index all events again from the log alone, and return the number of rows that were examined.

        A rebuild that was interrupted is continued.

        Raises:
            HermesError: the index cannot be written.
        """
        if not log_exists(self.path):
            return 0
        if not self._read(search_index.is_unfinished, False):
            self._write(lambda base: search_index.reset(base, search_index.TABLES))
        return self._fill(math.inf)

    def _fill(self, limit_s: float) -> int:
        end, done = time.monotonic() + limit_s, 0
        while added := self._write(lambda base: search_index.fill(base, _BATCH)):
            done += added
            if time.monotonic() > end:
                break
        return done

    def identity(self) -> str:
        """Return an id of this log, which never changes; empty before the first event."""
        return self._read(queries.read_identity, "")

    def scan(self, after: int, kinds: Sequence[Kind], marker: str, limit: int) -> tuple[list[Event], int]:
        """Return events of all conversations in the order of their recording; see `queries.read_after`."""
        none: tuple[list[Event], int] = ([], after)
        return self._read(lambda base: queries.read_after(base, after, kinds, marker, limit), none)

    def export(self, conversation: str) -> Iterator[str]:
        """Yield the conversation as lines of JSON, one event each."""
        for event in self.events(conversation):
            fields = {"conversation": event.conversation, "number": event.number, "at": event.at, "kind": event.kind}
            yield json.dumps({**fields, "data": event.data}, ensure_ascii=False)

    @property
    def executor(self) -> ThreadPoolExecutor:
        """A thread for callers that must not block: a write may wait for another program, or for a slow disk."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="hermes-events")
        return self._executor

    def close(self) -> None:
        """Close the file. A later call opens it again."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()
        with self._lock:
            self._close_base()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, *, make: bool) -> sqlite3.Connection:
        if self._base is not None and self._is_replaced():
            self._close_base()
        if self._base is None:
            self._base = storage.connect(self.path, make=make)
            self._inode = storage.find_inode(self.path)
        return self._base

    def _is_replaced(self) -> bool:
        """Whether another program replaced a damaged file."""
        try:
            return self.path.stat().st_ino != self._inode
        except OSError:
            return False

    def _close_base(self) -> None:
        base, self._base = self._base, None
        self._prepared = False
        if base is not None:
            base.close()

    def _write(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """Run a transaction, which is committed completely or not at all."""
        with self._lock:
            return self._attempt(lambda: self._transact(change))

    def _read(self, query: Callable[[sqlite3.Connection], T], empty: T) -> T:
        """Run a query, or return ``empty`` if nothing was ever recorded."""
        with self._lock:
            return self._attempt(
                lambda: query(self._open(make=False)) if self._base or log_exists(self.path) else empty
            )

    def _transact(self, change: Callable[[sqlite3.Connection], T]) -> T:
        base = self._open(make=True)
        base.execute("BEGIN IMMEDIATE")
        try:
            if not self._prepared:
                turn_lock.prepare(base)
                search_index.prepare(base)
            result = change(base)
            base.execute("COMMIT")
        except BaseException:
            if base.in_transaction:  # SQLite ends some by itself, for example if the disk is full
                base.execute("ROLLBACK")
            raise
        self._prepared = True
        return result

    def _attempt(self, work: Callable[[], T]) -> T:
        """Run it, and once more after each repair of a damaged index or file."""
        try:
            for _ in range(_REPAIRS):
                try:
                    return work()
                except (search_index.IndexDamaged, sqlite3.DatabaseError) as error:
                    self._repair(error)
            return work()
        except (sqlite3.Error, OSError) as error:
            raise storage.translate_error(error, self.path) from error

    def _repair(self, error: search_index.IndexDamaged | sqlite3.DatabaseError) -> None:
        """Empty a damaged table of the index, or replace a damaged file; raise the error if neither is the case."""
        if isinstance(error, search_index.IndexDamaged):
            damaged = error.table
            try:
                self._transact(lambda base: search_index.reset(base, [damaged]))
            except sqlite3.DatabaseError as other:
                error = other
            else:
                return
        if not recovery.is_damaged(error, self.path):
            raise error
        inode, self._inode = self._inode, None
        self._close_base()
        recovery.replace_file(self.path, inode)
