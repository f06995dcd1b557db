"""Transactions of several threads on one connection, of which those that come together are committed together.

A commit waits for the disk. While one thread waits, others queue for the connection: the first of them leaves its
changes uncommitted for the next, and the last one commits those of all. Each thread goes on only after the commit that
has its changes, so that what was recorded is on the disk.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

_MOST = 64
"""Transactions of one commit; the first of them waits for the last."""
_LOOK_S = 1.0


class _Group:
    """Transactions that are committed together."""

    def __init__(self, changes: int) -> None:
        self.size = 0
        self.changes = changes
        """The changes of the connection before it."""
        self.ended = threading.Event()
        self.error = ""
        """Why none of them was committed."""


class GroupedCommits:
    """A connection that threads share."""

    def __init__(self, base: sqlite3.Connection) -> None:
        self._base = base
        self._lock = threading.Lock()
        self._queue = threading.Lock()
        self.queued = 0
        """The threads that wait for the connection to change something."""
        self._group: _Group | None = None
        """The transactions that are not committed."""

    def close(self) -> None:
        """Commit what is open, and close the connection."""
        with self._lock:
            self._commit()
            self._base.close()

    @contextmanager
    def read(self) -> Generator[sqlite3.Connection]:
        """Yield the connection for a query, which also sees what is about to be committed."""
        with self._lock:
            yield self._base

    @contextmanager
    def transact(self) -> Generator[sqlite3.Connection]:
        """Yield the connection in a transaction; it is undone if the block raises, and else on the disk at the end.

        Raises:
            sqlite3.Error: it could not be committed.
        """
        self._acquire()
        group: _Group | None = None
        unsaved: _Group | None = None
        try:
            group = self._group = self._group or self._begin()
            self._run("SAVEPOINT part")
            yield self._base
            self._run("RELEASE part")
            group.size += 1
            if self._base.total_changes != group.changes:  # its own changes, or others that it may have seen
                unsaved = group
        except BaseException as error:
            self._undo(error)
            raise
        finally:
            if self.queued == 0 or (group is not None and group.size >= _MOST):
                self._commit()
            self._lock.release()
        if unsaved is not None:
            self._wait(unsaved)

    def _acquire(self) -> None:
        with self._queue:
            self.queued += 1
        try:
            self._lock.acquire()
        finally:
            with self._queue:
                self.queued -= 1

    def _begin(self) -> _Group:
        self._run("BEGIN IMMEDIATE")
        return _Group(self._base.total_changes)

    def _run(self, statement: str) -> None:
        self._base.execute(statement)

    def _undo(self, error: BaseException) -> None:
        """Undo the block that raised; if SQLite has undone all of the group, the group has failed."""
        if self._base.in_transaction:
            self._run("ROLLBACK TO part")
            self._run("RELEASE part")
        elif self._group is not None:
            self._end(str(error))

    def _commit(self) -> None:
        """Commit the group, if one is open."""
        if self._group is None:
            return
        try:
            self._run("COMMIT")
        except sqlite3.Error as error:
            if self._base.in_transaction:
                self._run("ROLLBACK")
            self._end(str(error))
        else:
            self._end("")

    def _end(self, error: str) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.error = error
            group.ended.set()

    def _wait(self, group: _Group) -> None:
        while not group.ended.wait(_LOOK_S):
            with self._lock:  # the thread that should commit was interrupted before it had the connection
                if self._group is group:
                    self._commit()
        if group.error:
            raise sqlite3.OperationalError(group.error)
