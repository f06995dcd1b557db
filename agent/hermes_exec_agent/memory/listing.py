"""The journal and its history as lines for a person."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hermes_exec_agent.memory.entries import FILES
from hermes_exec_agent.memory.origins import describe_origin
from hermes_exec_agent.memory.prompt import measure
from hermes_exec_agent.memory.screening import find_withholding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hermes_exec_agent.memory.journal import Journal
    from hermes_exec_agent.runtime.events.event import Event


def describe_journal(journal: Journal) -> Iterator[str]:
    """Yield a line for each file and for each line of an entry; escape them before a terminal shows them."""
    for target, limit in journal.limits.items():
        entries = journal.read(target)
        yield f"{FILES[target]}: {len(entries)} entries, {measure(target, entries)} of {limit} characters"
        for each in entries:
            reason = find_withholding(each.text)
            about = (
                f"{describe_origin(each.origin)}; withheld from prompts: {reason}"
                if reason
                else describe_origin(each.origin)
            )
            first, *rest = each.text.splitlines()
            yield f"- {first}  [{about}]"
            yield from (f"  {line}" for line in rest)


def list_changes(events: Sequence[Event]) -> Iterator[list[str]]:
    """Yield number, time, author, file, conversation and the entries that came (+) and went (-) of each change."""
    for event in events:
        target = event.data["target"]
        after = [str(each["text"]) for each in event.data["entries"][target]]
        before = [str(text) for text in event.data["before"]]
        changes = [f"+ {text}" for text in after if text not in before]
        changes += [f"- {text}" for text in before if text not in after]
        at = time.strftime("%Y-%m-%d %H:%M", time.gmtime(event.at))
        source = str(event.data["source"]) or str(event.data["why"])
        yield [str(event.number), at, str(event.data["who"]), FILES[target], source, "; ".join(changes)]
