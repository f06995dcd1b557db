"""The origin of an entry's content, by the events of the conversation that it comes from.

A model names the content, so it cannot be believed about the source. Content is the person's if one message of theirs
has its words in the same order, with every negation between them; in a message that changes something "from" one state
"to" another one, the words of the new state count. It is the agent's own if the conversation has read no
text from outside. Anything else may come from a tool's output, a file or a page, and is untrusted.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from hermes_exec_agent.memory.entries import Entry, Source
from hermes_exec_agent.quoting import quote
from hermes_exec_agent.tools.provenance import is_inward

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hermes_exec_agent.memory.entries import Origin
    from hermes_exec_agent.runtime.events.event import Event

_FENCED = re.compile(r"^[^\n]*:\n(`{3,})\n.*?^\1[ \t]*$|^(`{3,})[^\n]*\n.*?(?:^\2[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
"""A file that ``--file`` attached, with its name; and other fenced text, which may come from anywhere."""
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
_CHANGE_FROM = frozenset(["from", "von", "vom", "de", "od", "\u0441"])
_CHANGE_TO = frozenset(["to", "into", "zu", "zum", "auf", "nach", "a", "à", "na", "para", "на"])
_FRAME = frozenset(_FRAME_WORDS.split())
_NEGATIONS = frozenset(_NEGATION_WORDS.split())
_QUESTION_WORDS = (
    "how what when where which who whom whose why do does did done can could would should will may might about any all "
    "me my mine i you your we our us know known tell told show anything everything something there it's this these"
)
_COMMON = _FRAME | frozenset(_QUESTION_WORDS.split())
_STEM = 5
_STATE = 30
"""Words in which the old state of a change ends, or the new one."""
_MOST_CHANGES = 8
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
    results = [each for each in events if _is_outside(each)]
    if not has_output and all(each.kind != "user" for each in results):
        asked = [each.number for each in events if each.kind == "assistant"][-1:]
        return Entry(text, "agent", tuple(Source(conversation, number) for number in asked))
    same = [each for each in results if " ".join(text.split()) in " ".join(str(each.data["content"]).split())]
    chosen = same[-1:] or results[-_NEWEST:]
    names = dict.fromkeys(str(each.data.get("name") or "an attached file") for each in chosen)
    sources = tuple(Source(conversation, each.number) for each in chosen)
    where = ", ".join([*names, *(str(each) for each in sources[-1:])]) or "an earlier conversation"
    return Entry(f"[from {where}] {quote(text, len(text) + 1)}", "untrusted", sources)


def describe_origin(origin: Origin) -> str:
    """Return an origin in the words of a list."""
    return {"person": "the person's words", "agent": "the agent's", "untrusted": "quoted"}[origin]


def find_words(text: str) -> list[str]:
    """Return the words of a text that tell what it is about, in order and each once."""
    return [word for word in dict.fromkeys(_words(text)) if word not in _COMMON]


def read_own_words(event: Event) -> str:
    """Return what the person wrote in an event, without the files that a request has in fences; empty for others."""
    content = str(event.data.get("content") or "")
    if event.kind == "result" and event.data.get("name") == "clarify":
        content = _read_answer(content)
    elif event.kind not in ("user", "steered"):
        return ""
    return _FENCED.sub("", content).strip()


def _read_answer(content: str) -> str:
    try:
        envelope = json.JSONDecoder().raw_decode(content)[0]
        return str(envelope["output"]) if envelope["ok"] is True else ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def _find_person(text: str, events: Sequence[Event]) -> tuple[Source, ...]:
    wanted = [word for word in _words(text) if word not in _FRAME]
    for event in reversed(events):
        if wanted and any(_says(message, wanted) for message in _read_message(event)):
            return (Source(event.conversation, event.number),)
    return ()


def _read_message(event: Event) -> Iterator[list[str]]:
    """Yield the words of what the person wrote: a request, or the answer to a question."""
    if words := read_own_words(event):
        yield _words(words)


def _is_outside(event: Event) -> bool:
    """Return whether an event has text from outside: a tool's result, or a request with an attached file or image."""
    if event.kind == "user":
        return bool(event.data.get("images")) or _FENCED.search(str(event.data["content"])) is not None
    return event.kind == "result" and not is_inward(str(event.data.get("name")))


def _words(text: str) -> list[str]:
    return [word.lower().replace("\u2019", "'") for word in _WORD.findall(text)]


def _says(message: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether a message contains the words, and not in the old state of a change alone."""
    for _ in range(_MOST_CHANGES):
        change = _find_change(message)
        if change is None:
            break
        until_new, without_old = change
        if _contains(message, wanted) and not _contains(until_new, wanted):
            return True
        message = without_old
    return _contains(message, wanted)


def _find_change(message: Sequence[str]) -> tuple[Sequence[str], Sequence[str]] | None:
    """Return a message up to the new state of a change, and without the old state; None if it changes nothing.

    The states have the same words, apart from negations: "from plots without a grid to plots with a grid".
    """
    for start, first in enumerate(message):
        if first not in _CHANGE_FROM:
            continue
        for end in range(start + 2, min(start + _STATE, len(message))):
            if message[end] not in _CHANGE_TO:
                continue
            old, new = _find_subject(message[start + 1 : end]), _find_subject(message[end + 1 : end + _STATE])
            if old and len(old) <= len(new) and all(map(is_same_word, old, new)):
                return message[:end], [*message[:start], *message[end + 1 :]]
    return None


def _find_subject(words: Sequence[str]) -> list[str]:
    return [word for word in words if word not in _FRAME and word not in _NEGATIONS]


def _contains(message: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether the words follow each other in the message, without a negation before that they lack."""
    index = 0
    for word in message:
        if index == len(wanted):
            break
        if is_same_word(word, wanted[index]):
            index += 1
        elif word in _NEGATIONS:
            return False
    return index == len(wanted)


def is_same_word(one: str, other: str) -> bool:
    """Return whether two words are the same, or forms of one word."""
    return one == other or (min(len(one), len(other)) >= _STEM and one[:_STEM] == other[:_STEM])
