"""Search of conversations by words and by meaning.

The two rankings are mixed by their ranks (`embedding.ranking.WEIGHTS`). A message whose meaning is not near enough is
not added, and without long-term memory, or while it is away, words alone decide.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from hermes_exec_agent.memory.embedding.ranking import fuse

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from hermes_exec_agent.memory.longterm.service import LongTermMemory
    from hermes_exec_agent.runtime.events.log import EventLog
    from hermes_exec_agent.runtime.events.search import SearchFilter, SearchHit

_DEPTH = 100
"""Hits by words that are mixed."""
_INDEX_S = 2.0
"""How long a search outside of a conversation waits until new messages are indexed."""


def search_log(
    log: EventLog, memory: LongTermMemory | None, text: str, limit: int, wanted: SearchFilter
) -> list[SearchHit]:
    """Return the best ``limit`` events and notes for a text. Blocks, for a bounded time.

    Raises:
        HermesError: the log cannot be read.
    """
    depth = limit if memory is None else max(limit, _DEPTH)
    return _mix(*_search_both(log, memory, text, depth, wanted), wanted)[:limit]


def search_conversations(
    log: EventLog, memory: LongTermMemory | None, text: str, wanted: SearchFilter
) -> dict[str, list[SearchHit]]:
    """Return the hits of each conversation, with conversations and hits in the order of the search; see `search_log`.

    Conversations are ranked by words and by meaning before these rankings are mixed: that finds more of them than the
    order of the mixed hits.
    """
    words, near = _search_both(log, memory, text, _DEPTH, wanted)
    groups: dict[str, list[SearchHit]] = {}
    for hit in _mix(words, near, wanted):
        groups.setdefault(hit.conversation, []).append(hit)
    if wanted.order != "relevance":
        return groups
    ranking = fuse({"words": [each.conversation for each in words], "meaning": [each.conversation for each in near]})
    return {name: groups[name] for name in ranking}


def _search_both(
    log: EventLog, memory: LongTermMemory | None, text: str, depth: int, wanted: SearchFilter
) -> tuple[list[SearchHit], list[SearchHit]]:
    """Return the hits by words, and the messages near in meaning."""
    words = log.search(text, depth, wanted)
    if memory is None or "messages" not in wanted.scopes:
        return words, []
    return words, memory.find_turns(text, lambda keys: log.select(keys, text, wanted))


def _mix(words: Sequence[SearchHit], near: Sequence[SearchHit], wanted: SearchFilter) -> list[SearchHit]:
    hits = {_identify(each): each for each in [*near, *words]}
    ranking = fuse({"words": [_identify(each) for each in words], "meaning": [_identify(each) for each in near]})
    found = [hits[key] for key in ranking]
    if wanted.order != "relevance":
        found.sort(key=lambda each: each.at, reverse=wanted.order == "newest")
    return found


def _identify(hit: SearchHit) -> tuple[str, int, bool]:
    return hit.conversation, hit.number, hit.kind == "note"


def search_as_configured(
    log: EventLog, text: str, limit: int, wanted: SearchFilter, tell: Callable[[str], None]
) -> list[SearchHit]:
    """Search for a person, outside of a conversation, with the long-term memory that the user's settings enable.

    ``tell`` is called with a line if these settings cannot be followed. See `search_log`.
    """
    with _use_memory(log, tell) as memory:
        if memory is not None:
            memory.index_briefly(_INDEX_S)
        return search_log(log, memory, text, limit, wanted)


@contextlib.contextmanager
def _use_memory(log: EventLog, tell: Callable[[str], None]) -> Generator[LongTermMemory | None]:
    from hermes_exec.config.load import load_settings  # slow to import

    settings = load_settings().memory
    if not (settings.memory_enabled and settings.embedder) or settings.long_term == "off":
        yield None
        return
    from hermes_exec_agent.memory.longterm.shared import acquire_memory, release_memory

    memory = acquire_memory(log, settings, tell)
    try:
        yield memory
    finally:
        if memory is not None:
            release_memory(memory)
