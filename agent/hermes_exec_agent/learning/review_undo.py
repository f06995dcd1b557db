"""Take back what the last review kept: its entries of memory, and its versions of skills."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from hermes_exec.errors import UsageError
from hermes_exec_agent.learning.review import find_changes
from hermes_exec_agent.learning.review_queue import read_reviews, record_action
from hermes_exec_agent.memory.entries import Entry

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from hermes_exec_agent.learning.review_queue import Review
    from hermes_exec_agent.memory.journal import Journal
    from hermes_exec_agent.runtime.events.event import Event
    from hermes_exec_agent.runtime.events.log import EventLog
    from hermes_exec_agent.skills.registry.registry import Registry


@dataclass(frozen=True, slots=True)
class Undone:
    """What an undo changed, and what it left."""

    review: int
    lines: tuple[str, ...]
    """What it changed, a line each."""
    left: tuple[str, ...]
    """Skills that were changed since the review, so that they stay as they are."""

    def describe(self) -> list[str]:
        """Return a line for each change, and for each skill that stays as it is."""
        stays = [f"{each}: changed since the review, so it stays as it is" for each in self.left]
        return [*self.lines, *stays, f"review {self.review} was undone"]


def undo_review(log: EventLog, journal: Journal) -> Undone:
    """Undo the latest review of the journal's person that kept something and was not undone.

    Entries that it added go, and entries that it removed come back; other entries stay. A skill of which it wrote the
    current version has the version before again, or is archived if there is none.

    Raises:
        UsageError: there is no such review.
        HermesError: the journal or the registry cannot be written; a repetition completes the undo.
    """
    done = [each for each in read_reviews(log) if each.end == "done" and not each.undone]
    review = next((each for each in reversed(done) if each.person == journal.person), None)
    if review is None:
        raise UsageError("no review kept anything that can be taken back", remedy="hermes-exec memory history")
    lines = _undo_entries(log, journal, review)
    more, left = _undo_skills(log, review)
    record_action(log, review.number, "undone")
    return Undone(review.number, (*lines, *more), left)


def _undo_entries(log: EventLog, journal: Journal, review: Review) -> tuple[str, ...]:
    lines: list[str] = []
    for event in reversed(find_changes(log, review.person, review.conversation)):
        target = event.data["target"]
        before = [str(each) for each in event.data["before"]]
        after = [str(each["text"]) for each in event.data["entries"][target]]
        added = {text for text in after if text not in before}
        removed = [each for each in _find_entries(log, event, target) if each.text not in after]
        change = partial(_put_back, added=added, removed=removed)
        changed = journal.write(target, change, who="person", why=f"undo of review {review.number}")
        texts = {each.text for each in changed.before}, {each.text for each in changed.after}
        lines += [f"forgot {text}" for text in texts[0] - texts[1]]
        lines += [f"restored {text}" for text in texts[1] - texts[0]]
    return tuple(lines)


def _put_back(entries: list[Entry], *, added: Collection[str], removed: Sequence[Entry]) -> list[Entry]:
    kept = [each for each in entries if each.text not in added]
    known = {each.text for each in kept}
    return [*kept, *(each for each in removed if each.text not in known)]


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
