"""Notes of conversations, in a stream of their own of the event log.

A note has sentences, each with the numbers of the events that show it. It is about a conversation up to one event. The
program's note is replaced by that of a model, and each by one of a later state; so the latest event counts, and each
state has at most one note of each writer.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from hermes_exec_agent.memory.origins import create_entry
from hermes_exec_agent.memory.screening import find_withholding
from hermes_exec_agent.quoting import flatten, quote
from hermes_exec_agent.runtime.events.event import NOTES
from hermes_exec_agent.runtime.events.log import Conflict
from hermes_exec_agent.tools.provenance import Provenance

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hermes_exec_agent.runtime.events.event import Event
    from hermes_exec_agent.runtime.events.log import EventLog

STREAM = NOTES
Part: TypeAlias = Literal["asked", "decided", "done", "failed", "open", "solved", "faster", "assumed", "next"]
PARTS: tuple[Part, ...] = ("asked", "decided", "done", "failed", "open")
ANSWERS: tuple[Part, ...] = ("solved", "faster", "assumed", "next")
"""Parts after the others, which only the notes of longer conversations have: see `learning.reflection`."""
Writer: TypeAlias = Literal["program", "model"]
MOST = 1200
"""Characters of a note, without the answers."""
MOST_ANSWERS = 800
"""Characters of the answers."""
_LONGEST = 300
"""Characters of a sentence."""
_TITLE = 100
_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of a note."""

    part: Part
    text: str
    events: tuple[int, ...]
    """The numbers of the events of the conversation that show it."""
    quoted: bool = False
    """Whether it may come from text that was read, such as the output of a tool."""

    def __str__(self) -> str:
        return f"{self.part}: {self.text} ({_number(self.events)})"

    def to_record(self) -> dict[str, Any]:
        """Return the sentence as an event contains it."""
        record: dict[str, Any] = {"part": self.part, "text": self.text, "events": list(self.events)}
        return record | ({"quoted": True} if self.quoted else {})

    def show(self) -> str:
        """Return the sentence for a model, as one quoted line."""
        mark = " [from text that was read]" if self.quoted else ""
        return f"{self.part}: {quote(self.text, _LONGEST)} ({_number(self.events)}){mark}"


@dataclass(frozen=True, slots=True)
class Note:
    """What happened in a conversation."""

    conversation: str
    upto: int
    """The number of the last event that it is about."""
    begun: float
    """When the conversation began, in seconds since 1970, UTC."""
    last: float
    """When its last event was."""
    sentences: tuple[Sentence, ...]
    how: Writer
    model: str = ""
    """The model that wrote it, or that was asked in vain."""
    usage: dict[str, object] = field(default_factory=dict[str, object])
    """The tokens of the model, as in other events."""
    reason: str = ""
    """Why the program wrote it after a model was asked."""

    @property
    def text(self) -> str:
        """The sentences with their numbers, one a line, of at most 2,000 characters."""
        return "\n".join(map(str, self.sentences))

    @property
    def rank(self) -> tuple[int, int]:
        """Orders the notes of one conversation: a note replaces those with a smaller rank."""
        return self.upto, 2 if self.how == "model" else 1 if self.reason else 0

    @classmethod
    def from_event(cls, event: Event) -> Note:
        """Return the note in an event of the stream."""
        data = event.data
        sentences = tuple(
            Sentence(each["part"], str(each["text"]), tuple(each["events"]), bool(each.get("quoted")))
            for each in data["sentences"]
        )
        return cls(
            str(data["conversation"]),
            int(data["upto"]),
            float(data["begun"]),
            float(data["last"]),
            sentences,
            data["how"],
            str(data.get("model", "")),
            dict(data.get("usage") or {}),
            str(data.get("reason", "")),
        )

    def to_record(self) -> dict[str, Any]:
        """Return the note as an event contains it."""
        sentences = [each.to_record() for each in self.sentences]
        record: dict[str, Any] = {"conversation": self.conversation, "upto": self.upto, "begun": self.begun}
        record |= {"last": self.last, "sentences": sentences, "how": self.how}
        more = {"model": self.model, "usage": self.usage, "reason": self.reason}
        return record | {name: value for name, value in more.items() if value}


def latest_note(log: EventLog, conversation: str) -> Note | None:
    """Return the note of a conversation; None without any."""
    event = log.latest_note(conversation)
    return None if event is None else Note.from_event(event)


def record_note(log: EventLog, note: Note) -> bool:
    """Record a note, unless there is one of the same state by the same writer, or of a later one.

    Raises:
        HermesError: the log cannot be written.
    """
    while True:
        last = log.last(STREAM)
        before = latest_note(log, note.conversation)
        if before is not None and before.rank >= note.rank:
            return False
        try:
            log.append(STREAM, "note", note.to_record(), after=last)
        except Conflict:  # another program recorded a note, perhaps this one
            continue
        return True


def create_program_note(events: Sequence[Event], *, model: str = "", usage: object = None, reason: str = "") -> Note:
    """Return the note that needs no model: the title of each request, and how it ended."""
    turns = list(_list_turns(events))
    sentences: list[Sentence] = []
    for turn in [*turns[:1], *turns[:0:-1]]:  # the first request has the subject, and the latest the state
        fitting = [*sentences, *turn]
        if len("\n".join(map(str, fitting))) > MOST:
            break
        sentences = fitting
    sentences.sort(key=lambda each: each.events)
    counts = cast("dict[str, object]", usage or {})
    return _create_note(events, sentences, "program", model, counts, reason)


def parse_model_note(
    reply: str, events: Sequence[Event], *, model: str, usage: dict[str, object], answers: Sequence[Part] = ()
) -> Note | None:
    """Return the note in a model's reply; None if it has no sentence with the numbers of events that exist.

    A sentence with an order to ignore instructions, the syntax of a call, hidden characters or a secret is left out.
    ``answers`` are the parts that were asked for in addition to those of each note, which does not depend on them.
    """
    found = _find_sentences(reply, events, (*PARTS, *answers))
    sentences = _select({part: found[part] for part in PARTS}, MOST)
    if not sentences:
        return None
    sentences += _select({part: found[part] for part in answers}, MOST_ANSWERS)
    return _create_note(events, sentences, "model", model, usage, "")


def _find_sentences(reply: str, events: Sequence[Event], parts: Sequence[Part]) -> dict[Part, list[Sentence]]:
    known = {each.number: each for each in events if each.kind != "started"}
    had_output = _has_output(events)
    found: dict[Part, list[Sentence]] = {part: [] for part in parts}
    for part, raw, numbers in _parse_sentences(reply, parts):
        if not raw or not numbers or not known.keys() >= set(numbers) or _find_problem(raw):
            continue
        text = flatten(raw, _LONGEST)
        origin = create_entry(text, [known[number] for number in numbers], has_output=had_output).origin
        sentence = Sentence(part, text, numbers, quoted=origin == "untrusted")
        if all(each.text != text for each in found[part]):
            found[part].append(sentence)
    return found


def _create_note(
    events: Sequence[Event],
    sentences: Sequence[Sentence],
    how: Writer,
    model: str,
    usage: dict[str, object],
    reason: str,
) -> Note:
    first, last = events[0], events[-1]
    return Note(last.conversation, last.number, first.at, last.at, tuple(sentences), how, model, usage, reason)


def _number(events: Iterable[int]) -> str:
    return ", ".join(f"#{number}" for number in events)


def _has_output(events: Iterable[Event]) -> bool:
    provenance = Provenance()
    for event in events:
        if event.kind == "started":
            provenance.add_start(event.data)
        elif event.kind == "result":
            provenance.add_result(event)
    return provenance.has_output or bool(provenance.parts)


def _list_turns(events: Sequence[Event]) -> Iterator[list[Sentence]]:
    """Yield the sentences of each turn: the request, and its end."""
    had_output = _has_output(events)
    starts = [index for index, each in enumerate(events) if each.kind == "user"]
    for start, end in zip(starts, [*starts[1:], len(events)], strict=True):
        asked = events[start]
        yield [
            _create_sentence("asked", _first_line(str(asked.data["content"])), asked, quoted=False),
            _describe_end(events[start + 1 : end], asked, had_output=had_output),
        ]


def _describe_end(events: Sequence[Event], asked: Event, *, had_output: bool) -> Sentence:
    for event in reversed(events):
        data = event.data
        if event.kind == "assistant" and not data.get("tool_calls"):
            return _create_sentence("done", f"Answered: {_first_line(str(data['content']))}", event, quoted=had_output)
        if event.kind == "failed":
            return _create_sentence("failed", _first_line(str(data.get("error", ""))), event, quoted=had_output)
        if event.kind == "interrupted":
            return _create_sentence("open", "Interrupted before an answer.", event, quoted=False)
        if event.kind == "ended" and not data.get("background"):
            text = f"Stopped: {_first_line(str(data.get('reason', '')))}"
            return _create_sentence("failed", text, event, quoted=False)
    return _create_sentence("open", "No answer was recorded.", events[-1] if events else asked, quoted=False)


def _create_sentence(part: Part, text: str, event: Event, *, quoted: bool) -> Sentence:
    reason = _find_problem(text)
    shown = f"[left out: {reason}]" if reason else text or "(empty)"
    return Sentence(part, shown, (event.number,), quoted=quoted and not reason)


def _find_problem(text: str) -> str:
    """Return why a sentence is left out; empty if it is not."""
    try:
        return find_withholding(text)
    except ImportError:  # the extra 'skills' has the shapes of secrets and of look-alike letters
        return "a text that cannot be examined here"


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return flatten(lines[0], _TITLE) if lines else ""


def _parse_sentences(reply: str, parts: Sequence[Part]) -> Iterator[tuple[Part, str, tuple[int, ...]]]:
    """Yield part, text and numbers of each sentence of a reply; nothing for what has another form."""
    try:
        fields: object
        fields, _ = json.JSONDecoder().raw_decode(reply[reply.index("{") :])
    except (ValueError, RecursionError):
        return
    for part in parts:
        for item in _as_list(_get(fields, part)):
            text, numbers = _get(item, "text"), _as_list(_get(item, "events"))
            if isinstance(text, str):
                yield part, text.strip(), _parse_numbers(numbers)


def _get(value: object, name: str) -> object:
    """Return a field of a JSON object; None for another value."""
    return cast("dict[str, object]", value).get(name) if isinstance(value, dict) else None


def _as_list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _parse_numbers(values: Sequence[object]) -> tuple[int, ...]:
    """Return the numbers, or none if one of the values is not a number."""
    texts = [str(value).lstrip("#") for value in values if not isinstance(value, bool)]
    if len(texts) != len(values) or not all(
        text.isascii() and text.isdigit() and len(text) < _DIGITS for text in texts
    ):
        return ()
    return tuple(dict.fromkeys(map(int, texts)))


_DIGITS = 10


def _select(found: dict[Part, list[Sentence]], most: int) -> list[Sentence]:
    """Return sentences of at most ``most`` characters, by part, the first ones of each part before later ones."""
    chosen: list[Sentence] = []
    for index in range(max(map(len, found.values()), default=0)):
        for group in found.values():
            fitting = [*chosen, *group[index : index + 1]]
            if len("\n".join(map(str, fitting))) <= most:
                chosen = fitting
    parts = list(found)
    return sorted(chosen, key=lambda each: parts.index(each.part))
