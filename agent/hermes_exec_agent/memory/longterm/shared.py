"""The long-term memory that a configuration names, shared by all conversations of a program."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

from hermes_exec.config.paths import state_folder
from hermes_exec.errors import HermesError
from hermes_exec_agent.memory.database import VARIABLE
from hermes_exec_agent.memory.embedding.create import create_embedder
from hermes_exec_agent.memory.longterm.service import LongTermMemory
from hermes_exec_agent.runtime.events.log import EventLog

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from hermes_exec.config.settings import MemorySettings
    from hermes_exec_agent.memory.longterm.store import MemoryStore

_LOCK = threading.Lock()
_open: dict[tuple[str, str, str], tuple[LongTermMemory, int]] = {}
"""The memories in use, with the number of their users, by log, settings and database."""


def create_store(settings: MemorySettings, environ: Mapping[str, str] | None = None) -> MemoryStore:
    """Return the store that ``long_term`` names; nothing is connected or created yet.

    Raises:
        HermesError: it is ``postgres``, and no database is configured.
    """
    known = os.environ if environ is None else environ
    url = known.get(VARIABLE, "")
    if settings.long_term == "postgres" or (settings.long_term == "auto" and url):
        from hermes_exec_agent.memory.longterm.postgres import connect_or_refuse

        return connect_or_refuse(url)
    from hermes_exec_agent.memory.longterm.exact import ExactStore

    return ExactStore(state_folder(known) / "memory" / "longterm.sqlite")


def create_memory(log: EventLog, settings: MemorySettings) -> LongTermMemory | None:
    """Return the configured memory of a log, or None if none is configured; see `LongTermMemory.start`.

    Raises:
        HermesError: the configuration cannot be followed.
    """
    embedder = create_embedder(settings) if settings.long_term != "off" else None
    if embedder is None:
        return None
    return LongTermMemory(log, create_store(settings), embedder, floor=settings.recall_floor)


@contextlib.contextmanager
def share_memory(
    log: EventLog, settings: MemorySettings, tell: Callable[[str], None]
) -> Generator[LongTermMemory | None]:
    """Use the memory of a log; the first user starts it, and the last one closes it.

    A configuration that cannot be followed is shown to the person in one line, and None is returned.
    """
    key = (str(log.path), repr(settings), os.environ.get(VARIABLE, ""))
    try:
        memory = _acquire(key, log, settings)
    except HermesError as error:
        tell(str(error))
        memory = None
    try:
        yield memory
    finally:
        if memory is not None:
            _release(key)


def _acquire(key: tuple[str, str, str], log: EventLog, settings: MemorySettings) -> LongTermMemory | None:
    with _LOCK:
        if key in _open:
            memory, users = _open[key]
            _open[key] = memory, users + 1
            return memory
        # The log of the first user may be closed before that of the last one.
        created = create_memory(EventLog(log.path), settings)
        if created is not None:
            _open[key] = created, 1
            created.start()
        return created


def _release(key: tuple[str, str, str]) -> None:
    with _LOCK:
        memory, users = _open[key]
        if users > 1:
            _open[key] = memory, users - 1
            return
        del _open[key]
    memory.close()
