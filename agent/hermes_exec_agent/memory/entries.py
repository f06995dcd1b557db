"""Entries of the journal, and the operations on a list of them.

A file is plain Markdown; a line with ``§`` alone parts its entries. An entry's origin is not in the file: the event log
records it, and an entry that the log does not know was written by the person who edited the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.quoting import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Target: TypeAlias = Literal["memory", "user"]
TARGETS: tuple[Target, ...] = ("memory", "user")
FILES: dict[Target, str] = {"memory": "MEMORY.md", "user": "USER.md"}
Origin: TypeAlias = Literal["person", "agent", "untrusted"]
Action: TypeAlias = Literal["add", "replace", "remove"]

_PART = re.compile(r"^[ \t]*§[ \t]*$", re.MULTILINE)
_JOINT = "\n§\n"
_SHOWN = 60


class Ambiguous(HermesError):
    """A text is in several entries, so that no entry was changed."""


@dataclass(frozen=True, slots=True)
class Source:
    """An event that an entry's content came from."""

    conversation: str
    number: int

    def __str__(self) -> str:
        return f"{self.conversation} #{self.number}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry."""

    text: str
    origin: Origin = "person"
    sources: tuple[Source, ...] = ()

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Entry:
        """Return the entry in an event."""
        sources = tuple(Source(str(each[0]), int(each[1])) for each in record.get("sources", ()))
        return cls(str(record["text"]), record["origin"], sources)

    def to_record(self) -> dict[str, Any]:
        """Return the entry as an event contains it."""
        sources = [[each.conversation, each.number] for each in self.sources]
        return {"text": self.text, "origin": self.origin, "sources": sources}


@dataclass(frozen=True, slots=True)
class Operation:
    """A change of one entry."""

    action: Action
    entry: Entry = field(default_factory=lambda: Entry(""))
    """The new entry of ``add`` and ``replace``."""
    old_text: str = ""
    """A part of the entry that ``replace`` and ``remove`` change, which no other entry contains."""


def split_entries(text: str) -> list[str]:
    """Return the texts of the entries of a file."""
    parts = (part.strip() for part in _PART.split(text.replace("\r\n", "\n")))
    return list(dict.fromkeys(part for part in parts if part))


def join_entries(entries: Iterable[Entry]) -> str:
    """Return the content of a file."""
    text = _JOINT.join(each.text for each in entries)
    return f"{text}\n" if text else ""


def check_text(text: str) -> str:
    """Return the text of an entry without white space around it.

    Raises:
        UsageError: it is empty, or a line of it would part the entry in two.
    """
    text = text.strip()
    if not text:
        raise UsageError("an entry needs content", remedy="content")
    if _PART.search(text):
        raise UsageError("an entry cannot have a line with § alone, which parts entries", remedy="several operations")
    return text


def apply_operations(entries: Sequence[Entry], operations: Iterable[Operation]) -> list[Entry]:
    """Return the entries after all operations.

    Raises:
        Ambiguous: several entries contain an ``old_text``.
        UsageError: no entry does.
    """
    result = list(entries)
    for each in operations:
        if each.action == "add":
            if all(other.text != each.entry.text for other in result):
                result.append(each.entry)
            continue
        index = find_entry(result, each.old_text)
        others = [other.text for other in result[:index] + result[index + 1 :]]
        result[index : index + 1] = [] if each.action == "remove" or each.entry.text in others else [each.entry]
    return result


def find_entry(entries: Sequence[Entry], old_text: str) -> int:
    """Return the index of the one entry that contains ``old_text``; an entry with exactly that text comes first.

    Raises:
        Ambiguous: several entries do.
        UsageError: no entry does.
    """
    old_text = old_text.strip()
    found = [index for index, each in enumerate(entries) if old_text and old_text in each.text]
    same = [index for index in found if entries[index].text == old_text]
    if len(same or found) == 1:
        return (same or found)[0]
    if not found:
        raise UsageError(f"no entry contains {quote(old_text, _SHOWN)}", remedy="a part of one, as old_text")
    named = ", ".join(quote(entries[index].text, _SHOWN) for index in found)
    raise Ambiguous(f"{len(found)} entries contain {quote(old_text, _SHOWN)}: {named}", remedy="a longer old_text")


def merge_edit(base: Sequence[str], edited: Sequence[str], other: Sequence[str]) -> tuple[list[str], list[str]]:
    """Merge the entries that a person edited with those that another program wrote meanwhile.

    Args:
        base: the entries that both began with.
        edited: those of the person, who is right where both changed the same entry.
        other: those of the other program.

    Returns:
        The merged entries, and those of the other program that are left out.
    """
    both_changed = any(text not in edited and text not in other for text in base)
    removed = {text for text in base if text not in other}
    merged = [text for text in edited if text not in removed]
    added = [text for text in other if text not in base and text not in merged]
    return (merged, added) if both_changed else ([*merged, *added], [])
