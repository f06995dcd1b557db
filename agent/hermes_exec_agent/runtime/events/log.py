"""The log of conversations: events are appended, and never changed or removed.

Each conversation counts its own events without a gap. A program that goes on with one holds its turn (`turnlock`), and
says which event it believes to be the last, so two programs never go on with the same conversation at once.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from hermes_exec.config.paths import shown
from hermes_exec.errors import HermesError, UsageError
from hermes_exec.observe.redact import Redactor
from hermes_exec_agent.runtime.events import queries, turn_lock
from hermes_exec_agent.runtime.events.event import Event
from hermes_exec_agent.runtime.events.storage import connect, conversations_file, is_there, refusing

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Generator, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from hermes_exec_agent.runtime.events.event import Kind
    from hermes_exec_agent.runtime.events.queries import SearchHit, Summary
    from hermes_exec_agent.runtime.events.turn_lock import TurnLock


class Conflict(HermesError):
    """Somebody else went on with the conversation; nothing was recorded."""


def new_id() -> str:
    """An id for a conversation: when it began, and a random part. Sorts by time."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


def _last(base: sqlite3.Connection, conversation: str, after: int | None) -> int:
    """The number of the last event, which has to be ``after`` if that is given."""
    last = queries.last(base, conversation)
    if after is not None and last != after:
        raise Conflict(
            f"conversation {shown(conversation)}: another program went on with it",
            remedy="end that program, or begin this conversation again from what is recorded now",
        )
    return last


def _json(data: Mapping[str, Any]) -> str:
    """As text that a database can hold: half of a surrogate pair, which a model may send, is written as an escape."""
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
    queries.index(base, seq or 0, kind, data)
    return Event(conversation, number, at, kind, data)


class EventLog:
    """One log. Threads may share it; each call is short, and safe against being killed at any moment."""

    def __init__(self, path: Path, *, redactor: Redactor | None = None) -> None:
        """``path`` is made with the first event, for this user alone. ``redactor`` takes keys out of what is kept."""
        self.path = path
        self._redactor = redactor or Redactor()
        self._lock = threading.Lock()
        self._base: sqlite3.Connection | None = None
        self._executor: ThreadPoolExecutor | None = None

    @classmethod
    def of_user(cls, environ: Mapping[str, str] | None = None, *, redactor: Redactor | None = None) -> EventLog:
        """The user's own; see `conversations_file`."""
        return cls(conversations_file(environ), redactor=redactor)

    def append(self, conversation: str, kind: Kind, data: Mapping[str, Any], *, after: int | None = None) -> Event:
        """Record an event. When this returns it is there, and before that it is there whole or not at all.

        Args:
            conversation: its id.
            kind: see `Kind`.
            data: what happened, as JSON can hold it.
            after: the number of what is believed to be the last event.

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
        texts: list[tuple[Kind, str]] = [(kind, self._redactor.text(_json(data))) for kind, data in events]
        with self._writing() as base:
            turn_lock.check(base, conversation, turn)
            last = _last(base, conversation, after)
            return [
                _insert(base, conversation, last + number, at, kind, text)
                for number, (kind, text) in enumerate(texts, 1)
            ]

    def acquire_turn(self, conversation: str, lease_s: float = turn_lock.LEASE_S) -> TurnLock:
        """Hold the turn of a conversation, until `release_turn`; renew it before ``lease_s`` seconds are over.

        Raises:
            TurnHeld: another holder, in this program or in another one, may still live.
        """
        with self._writing() as base:
            return turn_lock.acquire(base, conversation, lease_s)

    def renew_turn(self, turn: TurnLock) -> None:
        """Begin its lease anew.

        Raises:
            TurnLost: another program holds it now, or held it meanwhile.
        """
        with self._writing() as base:
            turn_lock.renew(base, turn)

    def release_turn(self, turn: TurnLock) -> None:
        """Let the next one have it; safe for one that was lost."""
        with self._writing() as base:
            turn_lock.release(base, turn)

    def refuse_held_turn(self, conversation: str) -> None:
        """See that no turn of a conversation runs, before anything is opened for the next one.

        Raises:
            TurnHeld: one runs.
        """
        with self._reading() as base:
            if base is not None:
                turn_lock.refuse_held(base, conversation)

    def events(self, conversation: str, since: int = 0) -> list[Event]:
        """The events of a conversation whose numbers are greater than ``since``; none if there is no such one."""
        with self._reading() as base:
            return queries.events(base, conversation, since) if base else []

    def last(self, conversation: str) -> int:
        """The number of its last event, or 0."""
        with self._reading() as base:
            return queries.last(base, conversation) if base else 0

    def find(self, beginning: str) -> str:
        """The id that begins so.

        Raises:
            UsageError: none does, or several do.
        """
        with self._reading() as base:
            found = queries.beginning(base, beginning) if base else []
        if len(found) == 1 or beginning in found:
            return beginning if beginning in found else found[0]
        if not found:
            raise UsageError(f"no conversation {shown(beginning)}", remedy="hermes-exec conversations list")
        raise UsageError(f"several conversations begin with {shown(beginning)}: {', '.join(found[:5])}")

    def title(self, conversation: str) -> str:
        """The first line that the person wrote; escape it before a terminal shows it."""
        with self._reading() as base:
            return queries.title(base, conversation) if base else ""

    def conversations(self, limit: int = 50, before: str | None = None) -> list[Summary]:
        """The conversations, the latest first; ``before`` is the id of the last one of the page before."""
        with self._reading() as base:
            return queries.conversations(base, limit, before) if base else []

    def search(self, text: str, limit: int = 20, *, thoughts: bool = False) -> list[SearchHit]:
        """Where the words of ``text`` were said or shown, best first; with ``thoughts`` where models thought them."""
        with self._reading() as base:
            return queries.search(base, text, limit, thoughts=thoughts) if base else []

    def export(self, conversation: str) -> Iterator[str]:
        """The conversation as lines of JSON, an event each."""
        for event in self.events(conversation):
            fields = {"conversation": event.conversation, "number": event.number, "at": event.at, "kind": event.kind}
            yield json.dumps({**fields, "data": event.data}, ensure_ascii=False)

    @property
    def executor(self) -> ThreadPoolExecutor:
        """A thread for those who must not block: a write may wait for another program, or for a slow disk."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="hermes-events")
        return self._executor

    def close(self) -> None:
        """Let go of the file. A later call opens it again."""
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
        """The database in a transaction, which counts as a whole or not at all."""
        with self._lock, refusing(self.path):
            base = self._open(make=True)
            base.execute("BEGIN IMMEDIATE")
            try:
                turn_lock.prepare(base)
                yield base
                base.execute("COMMIT")
            except BaseException:
                if base.in_transaction:  # SQLite ends some by itself, as where the disk is full
                    base.execute("ROLLBACK")
                raise

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Connection | None]:
        """The database, or None where nothing was ever recorded."""
        with self._lock, refusing(self.path):
            yield self._open(make=False) if self._base or is_there(self.path) else None
