"""Writes the memories in an event log, and those in the registry of skills, to a store.

The log is the queue: a store that was away, or a program that was killed, costs nothing but time, as the next run
continues at the recorded position. Several programs may run at once: a batch is applied by one of them.

A text with hidden characters or a secret is left out. The journal's latest change decides which entries exist, so that
a forgotten entry leaves the index.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError
from hermes_exec_agent.memory.embedding.protocol import clean_text
from hermes_exec_agent.memory.entries import Entry, Source
from hermes_exec_agent.memory.journal import STREAM
from hermes_exec_agent.memory.longterm.memory import Memory
from hermes_exec_agent.memory.longterm.store import Batch
from hermes_exec_agent.memory.notes import Note
from hermes_exec_agent.memory.screening import find_refusal
from hermes_exec_agent.runtime.events.search_index import CJK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from hermes_exec_agent.memory.embedding.protocol import Embedder
    from hermes_exec_agent.memory.entries import Origin
    from hermes_exec_agent.memory.longterm.memory import Kind
    from hermes_exec_agent.memory.longterm.store import MemoryStore
    from hermes_exec_agent.runtime.events.event import Event
    from hermes_exec_agent.runtime.events.event import Kind as EventKind
    from hermes_exec_agent.runtime.events.log import EventLog

_EVENTS = 32
"""Events of a batch, so that a kill loses little work."""
_TURNS = 16
"""The same for turns, nearly all of which are embedded."""
_STRIDE = 10_000
"""Events without a memory after which the position is written nevertheless."""
_STALE = 32
TRACEBACK = "Traceback (most recent call last)"
KINDS_OF_EVENTS: tuple[EventKind, ...] = ("memory", "note", "failed", "result")
KINDS_OF_TURNS: tuple[EventKind, ...] = ("user", "assistant")
_LONGEST = 2000
_TRACE = 600
"""Characters of the end of a traceback, where the error is."""
_COMMAND = 200
_WORD = re.compile(rf"[{CJK}]|[^\W{CJK}]+")
_FEWEST_WORDS = 3
"""Words of a turn below which it is left out: it means little without its neighbours, and is near to everything."""


def read_events(
    events: Iterable[Event], read_title: Callable[[str], str]
) -> tuple[list[Memory], dict[Kind, frozenset[str]]]:
    """Return the memories in these events, and of each kind that was replaced as a whole, all sources that remain.

    Args:
        events: in the order of the log.
        read_title: returns the title of a conversation.
    """
    found: dict[str, Memory] = {}
    keep: dict[Kind, frozenset[str]] = {}
    for event in events:
        if event.kind == "memory":
            if event.conversation != STREAM:
                continue  # a change of the USER.md of a person
            entries = _read_journal(event)
            sources = frozenset(each.source for each in entries)
            gone = [source for source, each in found.items() if each.kind == "semantic" and source not in sources]
            for source in gone:
                del found[source]
            for each in entries:
                found.setdefault(each.source, each)
            keep["semantic"] = sources
        elif memory := _read_event(event, read_title):
            found[memory.source] = memory
    return [each for each in found.values() if not find_refusal(each.text)], keep


def read_turns(events: Iterable[Event]) -> list[Memory]:
    """Return the messages of persons and models in these events; not their calls, nor notices of the program."""
    found: list[Memory] = []
    for each in events:
        text = clean_text(str(each.data.get("content") or "").strip()[:_LONGEST])
        evidence = (Source(each.conversation, each.number),)
        found.append(Memory("turn", text, f"turn:{each.conversation}#{each.number}", each.at, evidence=evidence))
    return [each for each in found if len(_WORD.findall(each.text)) >= _FEWEST_WORDS and not find_refusal(each.text)]


def identify_entry(text: str) -> str:
    """Return the source of an entry of the journal."""
    return f"journal:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"


def list_skills() -> list[Memory] | None:
    """Return what the skills report about themselves; None if the registry cannot be read.

    Skills of untrusted origin are left out, as their descriptions may instruct.
    """
    from hermes_exec_agent.skills.registry.home import default_home

    try:
        if not default_home().log.exists():
            return []
        from hermes_exec_agent.skills.registry.registry import Registry
        from hermes_exec_agent.tools.skill_index import read_entries

        entries = [each for each in read_entries(Registry()) if not each.is_material]
    except (HermesError, ImportError, OSError):
        return None
    found = [
        Memory("declarative", clean_text(each.summary)[:_LONGEST], f"skill:{each.name}", 0.0, "agent")
        for each in entries
    ]
    return [each for each in found if not find_refusal(each.text)]


def _read_journal(event: Event) -> list[Memory]:
    records: Sequence[dict[str, Any]] = event.data.get("entries", {}).get("memory", ())
    entries = [Entry.from_record(each) for each in records]
    return [
        Memory("semantic", clean_text(each.text)[:_LONGEST], identify_entry(each.text), event.at, each.origin,
               each.sources or (Source(event.conversation, event.number),))
        for each in entries
    ]  # fmt: skip


def _read_event(event: Event, read_title: Callable[[str], str]) -> Memory | None:
    data, here = event.data, Source(event.conversation, event.number)
    if event.kind == "note":
        note = Note.from_event(event)
        evidence = Source(note.conversation, note.upto)
        text = clean_text("\n".join(f"{each.part}: {each.text}" for each in note.sentences))[:_LONGEST]
        origin: Origin = "untrusted" if any(each.quoted for each in note.sentences) else "agent"
        source = f"note:{note.conversation}"
        return Memory("episodic", text, source, note.last, origin, (evidence,)) if text.strip() else None
    if event.kind == "failed":
        text = f"{read_title(event.conversation)}: failed: {data.get('error', '')}"
    elif event.kind == "result":
        trace = _read_traceback(str(data.get("content", "")))
        if not trace:
            return None
        text = f"{str(data.get('source') or data.get('name') or '')[:_COMMAND]}\n{trace}"
    else:
        return None
    source = f"run:{event.conversation}#{event.number}"
    return Memory("episodic", clean_text(text)[:_LONGEST], source, event.at, evidence=(here,))


def _read_traceback(content: str) -> str:
    """Return the end of the last traceback in a tool's result."""
    try:
        fields = json.JSONDecoder().raw_decode(content)[0]
        output = str(fields["output"])
    except (ValueError, TypeError, KeyError):
        output = content
    start = output.rfind(TRACEBACK)
    return output[start:].strip()[-_TRACE:] if start >= 0 else ""


class Indexer:
    """One log, and the store of its memories."""

    def __init__(
        self,
        log: EventLog,
        store: MemoryStore,
        embedder: Embedder,
        *,
        read_skills: Callable[[], Sequence[Memory] | None] = list_skills,
    ) -> None:
        self._log = log
        self._store = store
        self._embedder = embedder
        self._read_skills = read_skills
        self.stop = threading.Event()
        """Set to end a run after its batch."""

    def catch_up(self) -> int:
        """Index what the log has after the recorded positions, turns last; return the number of rows written.

        Raises:
            StoreUnavailable, EmbeddingFailed: the rest is left to the next run.
            AnotherEmbedder: the store has vectors of another one.
        """
        log = self._log.identity()
        if not log:
            return 0
        written = 0
        while not self.stop.is_set():
            position = self._store.position(log)
            events, upto = self._log.scan(position, KINDS_OF_EVENTS, TRACEBACK, _EVENTS)
            memories, keep = read_events(events, self._log.title)
            if not events and upto - position < _STRIDE:
                break
            if self._write(log, Batch(position, upto, memories, self._embed(memories), keep)):
                written += len(memories)
        written += 0 if self.stop.is_set() else self._index_skills(log)
        return written + self._index_turns(log)

    def rebuild(self) -> int:
        """Index the whole log again, from its beginning; return the number of rows written."""
        if log := self._log.identity():
            self._store.forget(log)
        return self.catch_up()

    def reembed(self, report: Callable[[int], None] = lambda _: None) -> int:
        """Record this embedder, and replace the vectors of other ones; return how many were replaced.

        A run that is killed is continued by the next one. ``report`` is called with the number of rows so far.
        """
        self._store.adopt(self._embedder.name, self._embedder.dimension)
        done = 0
        while not self.stop.is_set() and (rows := self._store.list_stale(_STALE)):
            vectors = self._embedder.embed([text for _, text in rows], query=False)
            self._store.replace_vectors(rows, vectors)
            done += len(rows)
            report(done)
        self._store.maintain()
        return done

    def _index_turns(self, log: str) -> int:
        written = 0
        while not self.stop.is_set():
            position = self._store.position(log, "turns")
            events, upto = self._log.scan(position, KINDS_OF_TURNS, "", _TURNS)
            if not events and upto - position < _STRIDE:
                break
            turns = read_turns(events)
            if self._write(log, Batch(position, upto, turns, self._embed(turns), part="turns")):
                written += len(turns)
        return written

    def _write(self, log: str, batch: Batch) -> bool:
        if not self._store.write(log, batch):
            return False
        if batch.memories:
            self._store.maintain()
        return True

    def _embed(self, memories: Sequence[Memory]) -> NDArray[np.float32]:
        return self._embedder.embed([each.text for each in memories], query=False)

    def _index_skills(self, log: str) -> int:
        skills = self._read_skills()
        if skills is None:
            return 0
        known = self._store.texts(log, "declarative")
        new = [each for each in skills if known.get(each.source) != each.text]
        sources = frozenset(each.source for each in skills)
        if not new and sources == known.keys():
            return 0
        position = self._store.position(log)
        written = self._write(log, Batch(position, position, new, self._embed(new), {"declarative": sources}))
        return len(new) if written else 0
