"""The origin of an entry's content, by the events of the conversation that it comes from.

A model names the content, so it cannot be believed about the source. Content is the person's if one message of theirs
has its words in the same order, with every negation between them. It is the agent's own if the conversation has read no
text from outside. Anything else may come from a tool's output, a file or a page, and is untrusted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hermes_exec_agent.memory.entries import Entry, Source
from hermes_exec_agent.quoting import quote
from hermes_exec_agent.tools.provenance import is_inward

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hermes_exec_agent.memory.entries import Origin
    from hermes_exec_agent.runtime.events.event import Event

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?")
_FRAME_WORDS = (
    "the a an user person they he she it their them his her is are was has have wants want prefers prefer likes like "
    "says said asks asked uses use that to be of in for on with and"
)
"""Words that a note about the person adds to the person's own."""
_NEGATION_WORDS = (
    "not no never none without dont don't isnt isn't cannot can't stop nicht kein keine nie ne pas jamais nunca sin "
    "n\u00e3o \u043d\u0435 \u043d\u0435\u0442 \u043d\u0438\u043a\u043e\u0433\u0434\u0430"
)
_FRAME = frozenset(_FRAME_WORDS.split())
_NEGATIONS = frozenset(_NEGATION_WORDS.split())
_STEM = 5
_NEWEST = 3
"""Results that are named as the sources of content that none of them has verbatim."""


def create_entry(text: str, events: Sequence[Event], *, has_output: bool) -> Entry:
    """Return an entry with the origin of its text; untrusted text becomes a quotation with its source.

    Args:
        text: the content that a model wants to remember.
        events: of the conversation, until now.
        has_output: whether the conversation read text from outside.
    """
    if found := _find_person(text, events):
        return Entry(text, "person", found)
    conversation = events[-1].conversation if events else ""
    if not has_output:
        asked = [each.number for each in events if each.kind == "assistant"][-1:]
        return Entry(text, "agent", tuple(Source(conversation, number) for number in asked))
    results = [each for each in events if each.kind == "result" and not is_inward(str(each.data.get("name")))]
    same = [each for each in results if " ".join(text.split()) in " ".join(str(each.data["content"]).split())]
    chosen = same[-1:] or results[-_NEWEST:]
    names = dict.fromkeys(str(each.data.get("name")) for each in chosen)
    sources = tuple(Source(conversation, each.number) for each in chosen)
    where = ", ".join([*names, *(str(each) for each in sources[-1:])]) or "an earlier conversation"
    return Entry(f"[from {where}] {quote(text, len(text) + 1)}", "untrusted", sources)


def describe_origin(origin: Origin) -> str:
    """Return an origin in the words of a list."""
    return {"person": "the person's words", "agent": "the agent's", "untrusted": "quoted"}[origin]


def _find_person(text: str, events: Sequence[Event]) -> tuple[Source, ...]:
    wanted = [word for word in _words(text) if word not in _FRAME]
    for event in reversed(events):
        if wanted and any(_contains(message, wanted) for message in _read_message(event)):
            return (Source(event.conversation, event.number),)
    return ()


def _read_message(event: Event) -> Iterator[list[str]]:
    """Yield the words of what the person wrote: a request, or the answer to a question."""
    if event.kind == "user" or (event.kind == "result" and event.data.get("name") == "clarify"):
        yield _words(str(event.data["content"]))


def _words(text: str) -> list[str]:
    return [word.lower().replace("\u2019", "'") for word in _WORD.findall(text)]


def _contains(message: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether the words follow each other in the message, without a negation before that they lack."""
    index = 0
    for word in message:
        if index == len(wanted):
            break
        if _is_same(word, wanted[index]):
            index += 1
        elif word in _NEGATIONS:
            return False
    return index == len(wanted)


def _is_same(one: str, other: str) -> bool:
    return one == other or (min(len(one), len(other)) >= _STEM and one[:_STEM] == other[:_STEM])
