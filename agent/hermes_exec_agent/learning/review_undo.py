"""Take back what the last review kept: its entries of memory, and its versions of skills."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING

from hermes_exec.errors import UsageError
from hermes_exec_agent.learning.review import find_changes
from hermes_exec_agent.learning.review_queue import read_reviews, record_action
from hermes_exec_agent.memory.entries import Entry
from hermes_exec_agent.quoting import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_agent.learning.review_queue import Review
    from hermes_exec_agent.memory.journal import Journal
    from hermes_exec_agent.runtime.events.event import Event
    from hermes_exec_agent.runtime.events.log import EventLog
    from hermes_exec_agent.skills.registry.registry import Registry


_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Undone:
    """What an undo changed, and what it left."""

    review: int
    lines: tuple[str, ...]
    """What it changed, a line each."""
    left: tuple[str, ...]
    """Entries and skills that were changed since the review, so that they stay as they are."""

    def describe(self) -> list[str]:
        """Return a line for each change, and for each entry and skill that stays as it is."""
        stays = [f"{each}: changed since the review, so it stays as it is" for each in self.left]
        return [*self.lines, *stays, f"review {self.review} was undone"]


def undo_review(log: EventLog, journal: Journal) -> Undone:
    """Undo the latest review of the journal's person that kept something and was not undone.

    Entries that it added go, and entries that it removed come back; other entries stay. So does an entry that was
    changed since, in place of the one that the review replaced by it. A skill of which it wrote the
    current version has the version before again, or is archived if there is none.

    Raises:
        UsageError: there is no such review.
        HermesError: the journal or the registry cannot be written; a repetition completes the undo.
    """
    done = [each for each in read_reviews(log) if each.end == "done" and not each.undone]
    review = next((each for each in reversed(done) if each.person == journal.person), None)
    if review is None:
        raise UsageError("no review kept anything that can be taken back", remedy="hermes-exec memory history")
    lines, changed = _undo_entries(log, journal, review)
    more, left = _undo_skills(log, review)
    record_action(log, review.number, "undone")
    return Undone(review.number, (*lines, *more), (*changed, *left))


def _undo_entries(log: EventLog, journal: Journal, review: Review) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Undo the changes of memory; return a line for each, and the entries that stay as they were changed since."""
    lines: list[str] = []
    left: list[str] = []
    for event in reversed(find_changes(log, review.person, review.conversation)):
        target = event.data["target"]
        replaced = _list_replaced(log, event, target)
        change = partial(_put_back, replaced=replaced)
        changed = journal.write(target, change, who="person", why=f"undo of review {review.number}")
        texts = {each.text for each in changed.before}, {each.text for each in changed.after}
        lines += [f"forgot {text}" for text in texts[0] - texts[1]]
        lines += [f"restored {text}" for text in texts[1] - texts[0]]
        left += [f"the entry {quote(new, _SHOWN)}" for old, new in replaced if old and old.text not in texts[1]]
    return tuple(lines), tuple(left)


def _list_replaced(log: EventLog, event: Event, target: str) -> list[tuple[Entry | None, str]]:
    """Return each entry that a change removed, and the text in its place; None, or an empty text, if there is none."""
    before = [str(each) for each in event.data["before"]]
    after = [str(each["text"]) for each in event.data["entries"][target]]
    entries = _find_entries(log, event, target)
    found: list[tuple[Entry | None, str]] = []
    for tag, start, end, first, last in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            pairs = zip_longest(entries[start:end], after[first:last])
            found += [(old, new or "") for old, new in pairs]
    return found


def _put_back(entries: list[Entry], *, replaced: Sequence[tuple[Entry | None, str]]) -> list[Entry]:
    """Return the entries with those that were replaced, apart from those whose replacement was changed since."""
    texts = {each.text for each in entries}
    added = {new for _, new in replaced}
    back = [old for old, new in replaced if old and old.text not in texts and (not new or new in texts)]
    return [*(each for each in entries if each.text not in added), *back]


def _find_entries(log: EventLog, event: Event, target: str) -> list[Entry]:
    """Return the entries before a change, with their origins where the log has them."""
    earlier = log.events(event.conversation, event.number - 2)[:1] if event.number > 1 else []
    records = earlier[0].data["entries"].get(target, ()) if earlier else ()
    known = {entry.text: entry for entry in map(Entry.from_record, records)}
    return [known.get(text) or Entry(text) for text in map(str, event.data["before"])]


def _undo_skills(log: EventLog, review: Review) -> tuple[tuple[str, ...], tuple[str, ...]]:
    written = {
        str(event.data["name"]): int(event.data["version"])
        for event in log.events(review.conversation)
        if event.kind == "skill" and event.data.get("outcome") == "registered"
    }
    if not written:
        return (), ()
    from hermes_exec_agent.skills.registry.registry import Registry

    registry = Registry()
    lines: list[str] = []
    left: list[str] = []
    for name, version in written.items():
        if line := _undo_skill(registry, name, version):
            lines.append(line)
        else:
            left.append(name)
    return tuple(lines), tuple(left)


def _undo_skill(registry: Registry, name: str, version: int) -> str:
    skill = registry.skill(name)
    if skill.archived or skill.state == "pinned" or max(skill.versions) != version:
        return ""
    earlier = [number for number in skill.versions if number < version]
    if skill.current == version and earlier:
        registry.choose(name, max(earlier))
        return f"{name}: version {max(earlier)} again"
    if skill.current != version and earlier:
        return ""
    registry.mark("archived", name)
    return f"{name}: archived"
