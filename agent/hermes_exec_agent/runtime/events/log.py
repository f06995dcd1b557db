"""The log of conversations: events are appended, and never changed or removed.

Each conversation numbers its events without gaps. A program that resumes one holds its turn (`turn_lock`), and names
the event that it believes to be the last, so that two programs never continue one conversation at once.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import HermesError, UsageError
from hermes_exec.observe.redact import Redactor
from hermes_exec_agent.runtime.events import queries, scan, turn_lock
from hermes_exec_agent.runtime.events.event import Event
from hermes_exec_agent.runtime.events.storage import connect, conversations_file, log_exists, translate_errors

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Generator, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from hermes_exec_agent.runtime.events.event import Kind
    from hermes_exec_agent.runtime.events.queries import SearchHit, Summary
    from hermes_exec_agent.runtime.events.turn_lock import TurnLock


class Conflict(HermesError):
    """Another program continued the conversation; nothing was recorded."""


def new_id() -> str:
    """Return an id for a conversation: its start time and a random part. Ids sort by time."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


def _last(base: sqlite3.Connection, conversation: str, after: int | None) -> int:
    """Return the number of the last event, which must be ``after`` if that is given."""
    last = queries.last_number(base, conversation)
    if after is not None and last != after:
        raise Conflict(
            f"conversation {to_printable(conversation)}: another program went on with it",
            remedy="end that program, or resume this conversation from its record",
        )
    return last


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
    queries.index_event(base, seq or 0, kind, data)
    return Event(conversation, number, at, kind, data)


class EventLog:
    """One log. Threads may share it; each call is short, and safe against kills at any moment."""

    def __init__(self, path: Path, *, redactor: Redactor | None = None) -> None:
        """``path`` is created with the first event, for this user alone. ``redactor`` removes keys from events."""
        self.path = path
        self._redactor = redactor or Redactor()
        self._lock = threading.Lock()
        self._base: sqlite3.Connection | None = None
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
        with self._writing() as base:
            turn_lock.check(base, conversation, turn)
            last = _last(base, conversation, after)
            return [
                _insert(base, conversation, last + number, at, kind, text)
                for number, (kind, text) in enumerate(texts, 1)
            ]

    def acquire_turn(self, conversation: str, lease_s: float = turn_lock.LEASE_S) -> TurnLock:
        """Hold the turn of a conversation until `release_turn`; renew it before ``lease_s`` seconds have passed.

        Raises:
            TurnHeld: another holder, in this program or in another one, may still be alive.
        """
        with self._writing() as base:
            return turn_lock.acquire(base, conversation, lease_s)

    def renew_turn(self, turn: TurnLock) -> None:
        """Renew the lease.

        Raises:
            TurnLost: another program holds it now, or held it meanwhile.
        """
        with self._writing() as base:
            turn_lock.renew(base, turn)

    def release_turn(self, turn: TurnLock) -> None:
        """Release the turn; safe for a lost one."""
        with self._writing() as base:
            turn_lock.release(base, turn)

    def refuse_held_turn(self, conversation: str) -> None:
        """Check that no turn of a conversation runs, before anything is opened for the next one.

        Raises:
            TurnHeld: a turn runs.
        """
        with self._reading() as base:
            if base is not None:
                turn_lock.refuse_held(base, conversation)

    def events(self, conversation: str, since: int = 0) -> list[Event]:
        """Return the events of a conversation after ``since``; none if the conversation does not exist."""
        with self._reading() as base:
            return queries.read_events(base, conversation, since) if base else []

    def last(self, conversation: str) -> int:
        """Return the number of a conversation's last event, or 0."""
        with self._reading() as base:
            return queries.last_number(base, conversation) if base else 0

    def find(self, beginning: str) -> str:
        """Return the id that begins with ``beginning``.

        Raises:
            UsageError: no id does, or several do.
        """
        with self._reading() as base:
            found = queries.find_ids(base, beginning) if base else []
        if len(found) == 1 or beginning in found:
            return beginning if beginning in found else found[0]
        if not found:
            raise UsageError(f"no conversation {to_printable(beginning)}", remedy="hermes-exec conversations list")
        raise UsageError(f"several conversations begin with {to_printable(beginning)}: {', '.join(found[:5])}")

    def title(self, conversation: str) -> str:
        """Return the first line of the person's first message; escape it before a terminal shows it."""
        with self._reading() as base:
            return queries.read_title(base, conversation) if base else ""

    def conversations(self, limit: int = 50, before: str | None = None) -> list[Summary]:
        """Return the latest conversations; ``before`` is the id of the last one of the preceding page."""
        with self._reading() as base:
            return queries.list_conversations(base, limit, before) if base else []

    def search(self, text: str, limit: int = 20, *, thoughts: bool = False) -> list[SearchHit]:
        """Return events that contain the words of ``text``, best first; with ``thoughts``, in models' reasoning."""
        with self._reading() as base:
            return queries.search(base, text, limit, thoughts=thoughts) if base else []

    def identity(self) -> str:
        """Return an id of this log, which never changes; empty before the first event."""
        with self._reading() as base:
            return scan.read_identity(base) if base else ""

    def scan(self, after: int, kinds: Sequence[Kind], marker: str, limit: int) -> tuple[list[Event], int]:
        """Return events of all conversations in the order of their recording; see `scan.read_after`."""
        with self._reading() as base:
            return scan.read_after(base, after, kinds, marker, limit) if base else ([], after)

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
            base, self._base = self._base, None
            if base is not None:
                base.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, *, make: bool) -> sqlite3.Connection:
        if self._base is None:
            self._base = connect(self.path, make=make)
        return self._base

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        """Open the database for a transaction, which is committed completely or not at all."""
        with self._lock, translate_errors(self.path):
            base = self._open(make=True)
            base.execute("BEGIN IMMEDIATE")
            try:
                turn_lock.prepare(base)
                yield base
                base.execute("COMMIT")
            except BaseException:
                if base.in_transaction:  # SQLite ends some by itself, for example if the disk is full
                    base.execute("ROLLBACK")
                raise

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Connection | None]:
        """Open the database, or return None if nothing was ever recorded."""
        with self._lock, translate_errors(self.path):
            yield self._open(make=False) if self._base or log_exists(self.path) else None
