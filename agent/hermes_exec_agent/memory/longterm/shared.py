"""The long-term memory that a configuration names, shared by all conversations of a program."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from hermes_exec.config.paths import state_folder
from hermes_exec.errors import HermesError
from hermes_exec_agent.memory.database import VARIABLE
from hermes_exec_agent.memory.embedding.create import create_embedder
from hermes_exec_agent.memory.longterm.request_examples import ExampleVectors
from hermes_exec_agent.memory.longterm.service import LongTermMemory
from hermes_exec_agent.runtime.events.log import EventLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec.config.settings import MemorySettings
    from hermes_exec_agent.memory.longterm.store import MemoryStore

_LOCK = threading.Lock()
_open: dict[tuple[str, str, str], tuple[LongTermMemory, int]] = {}
"""The memories in use, with the number of their users, by log, settings and database."""


def create_store(settings: MemorySettings) -> MemoryStore:
    """Return the store that ``long_term`` names; nothing is connected or created yet.

    Raises:
        HermesError: it is ``postgres``, and no database is configured.
    """
    url = os.environ.get(VARIABLE, "")
    if settings.long_term == "postgres" or (settings.long_term == "auto" and url):
        from hermes_exec_agent.memory.longterm.postgres import connect_or_refuse

        return connect_or_refuse(url)
    from hermes_exec_agent.memory.longterm.exact import ExactStore

    return ExactStore(state_folder(os.environ) / "memory" / "longterm.sqlite")


def create_memory(log: EventLog, settings: MemorySettings) -> LongTermMemory | None:
    """Return the configured memory of a log, or None if none is configured; see `LongTermMemory.start`.

    Raises:
        HermesError: the configuration cannot be followed.
    """
    embedder = create_embedder(settings) if settings.long_term != "off" else None
    if embedder is None:
        return None
    examples = ExampleVectors(embedder, state_folder(os.environ) / "memory")
    return LongTermMemory(log, create_store(settings), embedder, floor=settings.recall_floor, examples=examples)


def acquire_memory(log: EventLog, settings: MemorySettings, tell: Callable[[str], None]) -> LongTermMemory | None:
    """Return the memory of a log, or None if none is configured; the first user starts it. Blocks.

    A configuration that cannot be followed is shown to the person in one line, and None is returned.
    """
    key = (str(log.path), repr(settings), os.environ.get(VARIABLE, ""))
    with _LOCK:
        memory, users = _open.get(key, (None, 0))
        if memory is None:
            own = EventLog(log.path)  # that of the first user may be closed before that of the last one
            try:
                memory = create_memory(own, settings)
            except HermesError as error:
                tell(str(error))
            if memory is None:
                own.close()
                return None
            memory.start()
        _open[key] = memory, users + 1
        return memory


def release_memory(memory: LongTermMemory) -> None:
    """End a use; the last user closes the memory. Blocks for a moment."""
    with _LOCK:
        key = next(each for each, (known, _) in _open.items() if known is memory)
        users = _open.pop(key)[1]
        if users > 1:
            _open[key] = memory, users - 1
            return
    memory.close()
