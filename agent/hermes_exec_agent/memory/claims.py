"""Claims about a person: each with its evidence, the time in which it held, and the claims that it contradicts.

The claims of a person are computed from two streams of the event log, so that the log alone has all of them: the
changes of their ``USER.md``, and the events of kind ``claim``. An entry that was added is a claim; one that was removed
closes its claim; an entry in the position of a removed one closes that claim as its contradiction. An event of kind
``claim`` has the number of the last change of ``USER.md`` before it, which orders the two streams whatever the clock
shows.

A claim is never changed otherwise, and none is removed. A claim that contradicts another one closes the newest claim
of that one's chain, so that at most one claim of a chain is open.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from hermes_exec.errors import HermesError, Refused, UsageError
from hermes_exec_agent.memory.entries import Entry, Source, check_text
from hermes_exec_agent.memory.origins import find_words, is_same_word
from hermes_exec_agent.memory.screening import find_refusal, find_withholding
from hermes_exec_agent.quoting import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hermes_exec_agent.memory.journal import Journal
    from hermes_exec_agent.runtime.events.event import Event
    from hermes_exec_agent.runtime.events.log import EventLog

ClaimKind: TypeAlias = Literal["need", "preference", "priority", "fact"]
KINDS: tuple[ClaimKind, ...] = ("need", "preference", "priority", "fact")
STREAM = "claims"
"""The stream of the owner's claims; those of another person have ``claims:NAME``."""
MOST_CONFIDENT: float = 0.8
"""The confidence that a model's claim can have; the person's own words have 1."""
_AGENTS = 0.6
"""The confidence of an entry that the agent wrote from its own observation."""
_LONGEST = 500
_ALIKE = 0.5
"""The part of the words of a claim that another claim of its kind must have for an advice."""
_SHAPES: dict[ClaimKind, str] = {
    "priority": r"\b(?:priorit\w+|most important|above all|first of all|comes? first|before all)\b",
    "need": r"\b(?:needs?|must|requires?|has to|have to|cannot do without)\b",
    "preference": r"\b(?:prefers?|likes?|dislikes?|wants?|loves?|hates?|favou?rites?|rather|enjoys?)\b",
}


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim about a person."""

    id: str
    """``j12-1`` for the first new entry of change 12 of ``USER.md``, ``c5`` for event 5 of the stream of claims."""
    text: str
    kind: ClaimKind
    confidence: float
    """From 0 to 1."""
    evidence: tuple[Source, ...]
    """The events that show it, at least one; none for conclusions of an external provider."""
    start: float
    """When it began to hold: seconds since 1970, UTC."""
    end: float | None = None
    """When it ceased to; None if it holds."""
    contradicts: tuple[str, ...] = ()
    """The ids of the claims that it closed."""
    contradicted_by: str = ""
    """The id of the claim that closed it."""

    @property
    def is_open(self) -> bool:
        """Whether the claim holds."""
        return self.end is None

    def to_record(self) -> dict[str, Any]:
        """Return the claim in JSON's types; evidence as ``CONVERSATION#NUMBER``."""
        return {
            "id": self.id,
            "text": self.text,
            "kind": self.kind,
            "confidence": self.confidence,
            "evidence": [f"{each.conversation}#{each.number}" for each in self.evidence],
            "from": self.start,
            "to": self.end,
            "contradicts": list(self.contradicts),
            "contradicted_by": self.contradicted_by,
        }


@dataclass(frozen=True, slots=True)
class NewClaim:
    """A claim to be recorded."""

    text: str
    kind: ClaimKind = "fact"
    confidence: float = 1.0
    evidence: tuple[Source, ...] = ()
    """If empty, the event that records it: then it has the person's own words."""
    contradicts: tuple[str, ...] = ()


class ClaimStore:
    """The claims of one person. Threads and programs may share it; calls block."""

    def __init__(self, log: EventLog, journal: Journal) -> None:
        """``journal`` is that of the person."""
        self.journal = journal
        self._log = log

    @property
    def person(self) -> str:
        """The name of the person; empty for the owner."""
        return self.journal.person

    @property
    def stream(self) -> str:
        """The id of the stream of the person's claims."""
        return f"{STREAM}:{self.person}" if self.person else STREAM

    def claims(self) -> list[Claim]:
        """Return all claims in the order of their beginning, those that ceased to hold too."""
        with contextlib.suppress(HermesError):  # the file or its folder cannot be read or written
            self.journal.record_edit("user")
        changes = self.journal.history()
        return fold_claims(changes, self._log.events(self.stream))

    def add(self, claim: NewClaim) -> Claim:
        """Record a claim, and close those that it contradicts.

        Raises:
            Refused: it has a secret, a hidden character, or a text that prompts withhold.
            UsageError: it is empty or too long, an open claim has the same text, or a contradicted claim is unknown.
        """
        text = check_claim(claim.text)
        known = {each.id: each for each in self.claims()}
        for each in known.values():
            if each.is_open and each.text.casefold() == text.casefold():
                raise UsageError(f"{each.id} has this claim already", remedy=f"hermes-exec user close {each.id}")
        for id in claim.contradicts:
            _get(known, id)
        data: dict[str, Any] = {
            "action": "add",
            "after": self._log.last(self.journal.stream("user")),
            "text": text,
            "kind": claim.kind,
            "confidence": min(max(float(claim.confidence), 0.0), 1.0),
            "evidence": [[each.conversation, each.number] for each in claim.evidence],
            "contradicts": list(claim.contradicts),
        }
        event = self._log.append(self.stream, "claim", data)
        return next(each for each in self.claims() if each.id == f"c{event.number}")

    def close(self, id: str) -> Claim:
        """Close a claim; one that comes from ``USER.md`` loses its entry there, which closes it.

        Raises:
            UsageError: there is no such claim, or it is closed.
        """
        claim = _get({each.id: each for each in self.claims()}, id)
        if not claim.is_open:
            raise UsageError(f"{id} is closed already", remedy="hermes-exec user show")
        entries = [each.text for each in self.journal.read("user")] if id.startswith("j") else []
        if claim.text in entries:
            self.journal.write(
                "user",
                lambda current: [each for each in current if each.text != claim.text],
                who="person",
                why=f"hermes-exec user close {id}",
            )
        else:
            after = self._log.last(self.journal.stream("user"))
            self._log.append(self.stream, "claim", {"action": "close", "after": after, "id": id})
        return _get({each.id: each for each in self.claims()}, id)

    def note_sent(self, conversation: str, upto: int) -> None:
        """Record that the person's words of a conversation, up to an event, were sent to the external provider."""
        data = {"action": "sent", "after": 0, "conversation": conversation, "upto": upto}
        self._log.append(self.stream, "claim", data)

    def last_sent(self, conversation: str) -> int:
        """Return the number of the last event of a conversation that was sent; 0 if none was."""
        sent = [each.data for each in self._log.events(self.stream) if each.data["action"] == "sent"]
        return max((int(each["upto"]) for each in sent if each["conversation"] == conversation), default=0)


def check_claim(text: str) -> str:
    """Return the text of a claim as one line.

    Raises:
        Refused: it has a secret, a hidden character, or a text that prompts withhold.
        UsageError: it is empty or too long.
    """
    line = " ".join(check_text(text).split())
    if len(line) > _LONGEST:
        raise UsageError(f"a claim has at most {_LONGEST} characters", remedy="several claims")
    if reason := find_refusal(line) or find_withholding(line):
        raise Refused(f"this may not be remembered: it has {reason}", remedy="leave that out")
    return line


def guess_kind(text: str) -> ClaimKind:
    """Return the kind of a claim by its words."""
    for kind, shape in _SHAPES.items():
        if re.search(shape, text, re.IGNORECASE):
            return kind
    return "fact"


def find_alike(text: str, claims: Iterable[Claim]) -> list[Claim]:
    """Return the open claims that may contradict a text, as they share many of its words: an advice, and no more."""
    words = find_words(text)
    found: list[Claim] = []
    for each in claims:
        other = find_words(each.text)
        common = [word for word in words if any(is_same_word(word, one) for one in other)]
        is_other = each.is_open and each.text.casefold() != text.casefold()
        if is_other and common and len(common) >= _ALIKE * min(len(words), len(other)):
            found.append(each)
    return found


def fold_claims(changes: Sequence[Event], events: Sequence[Event]) -> list[Claim]:
    """Return the claims that the changes of ``USER.md`` and the events of kind ``claim`` amount to.

    Args:
        changes: of the journal, in order.
        events: of the stream of claims, in order.
    """
    folding = _Folding()
    for event in _merge(changes, events):
        folding.advance(event.at)
        if event.kind == "memory":
            folding.apply_change(event)
        elif event.kind == "claim":
            folding.apply_claim(event)
    return list(folding.claims.values())


def _merge(changes: Sequence[Event], events: Sequence[Event]) -> Iterator[Event]:
    """Yield the events of both streams in order; each of the second follows the change that it names."""
    rest = iter(changes)
    change = next(rest, None)
    for event in events:
        while change is not None and change.number <= int(event.data.get("after", 0)):
            yield change
            change = next(rest, None)
        yield event
    while change is not None:
        yield change
        change = next(rest, None)


class _Folding:
    """Applies events to claims. Its time never goes back, so that no interval ends before it begins."""

    def __init__(self) -> None:
        self.claims: dict[str, Claim] = {}
        self._now = 0.0
        self._entries: dict[str, str] = {}
        """The ids of the claims of the present entries, by text."""

    def advance(self, at: float) -> None:
        self._now = max(self._now, at)

    def apply_change(self, event: Event) -> None:
        """Apply a change of ``USER.md``."""
        if event.data["target"] != "user":
            return
        before = [str(text) for text in event.data["before"]]
        after = {each.text: each for each in map(Entry.from_record, event.data["entries"]["user"])}
        replaced = _pair(before, list(after))
        for number, text in enumerate((each for each in after if each not in before), 1):
            entry = after[text]
            if entry.origin == "untrusted":
                continue
            old = self._entries.get(replaced.get(text, ""), "")
            here = Source(event.conversation, event.number)
            claim = Claim(
                id=f"j{event.number}-{number}",
                text=" ".join(text.split()),
                kind=guess_kind(text),
                confidence=1.0 if entry.origin == "person" else _AGENTS,
                evidence=(*entry.sources, here),
                start=self._now,
            )
            self._begin(claim, [old] if old else [])
            self._entries[text] = claim.id
        for text in before:
            if text not in after and (id := self._entries.pop(text, "")):
                self._end(id)

    def apply_claim(self, event: Event) -> None:
        """Apply an event of the stream of claims."""
        data = event.data
        if data["action"] == "close" and data["id"] in self.claims:
            self._end(data["id"])
        if data["action"] != "add":
            return
        evidence = tuple(Source(str(each[0]), int(each[1])) for each in data["evidence"])
        claim = Claim(
            id=f"c{event.number}",
            text=str(data["text"]),
            kind=cast("ClaimKind", data["kind"]),
            confidence=float(data["confidence"]),
            evidence=evidence or (Source(event.conversation, event.number),),
            start=self._now,
        )
        self._begin(claim, [str(each) for each in data["contradicts"]])

    def _begin(self, claim: Claim, contradicted: Sequence[str]) -> None:
        """Add a claim, which closes the newest claim of the chain of each that it contradicts."""
        self.claims[claim.id] = claim
        for id in contradicted:
            old = self._find_newest(id)
            if old is None or old.id == claim.id or old.id in claim.contradicts:
                continue
            end = self._now if old.end is None else old.end
            self.claims[old.id] = replace(old, end=end, contradicted_by=claim.id)
            claim = replace(claim, contradicts=(*claim.contradicts, old.id))
        self.claims[claim.id] = claim

    def _find_newest(self, id: str) -> Claim | None:
        found = self.claims.get(id)
        while found is not None and found.contradicted_by:
            found = self.claims[found.contradicted_by]
        return found

    def _end(self, id: str) -> None:
        if (claim := self.claims[id]).end is None:
            self.claims[id] = replace(claim, end=self._now)


def _pair(before: Sequence[str], after: Sequence[str]) -> dict[str, str]:
    """Return which removed entry each new one replaces: the one at its place, after the same remaining entry."""
    removed = _group(before, after)
    new = _group(after, before)
    return {text: old for place, texts in new.items() for text, old in zip(texts, removed.get(place, []), strict=False)}


def _group(entries: Sequence[str], other: Sequence[str]) -> dict[str, list[str]]:
    """Return the entries that ``other`` lacks, by the entry of both before them; empty at the beginning."""
    groups: dict[str, list[str]] = {}
    place = ""
    for text in entries:
        if text in other:
            place = text
        else:
            groups.setdefault(place, []).append(text)
    return groups


def _get(known: Mapping[str, Claim], id: str) -> Claim:
    if id not in known:
        raise UsageError(f"there is no claim {quote(id, 40)}", remedy="hermes-exec user history")
    return known[id]
