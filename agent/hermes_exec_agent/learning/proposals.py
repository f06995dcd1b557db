"""Proposals of the agent to change its configuration: a queue in the log, in which nothing takes effect.

Each is an event of the kind ``proposal`` in the stream `STREAM`. The agent adds proposals of changes, and the audits
add their advice, which has no change. What happens to a proposal is a further event with its number. The name of a
proposal begins with its number, which the program gives, so that no proposal can be taken for another one. Only
`proposals_apply` changes the configuration, on a person's word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.learning.proposals_edit import MOST, check_file
from hermes_exec_agent.quoting import flatten
from hermes_exec_agent.runtime.events.log import Conflict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_agent.runtime.events.event import Event
    from hermes_exec_agent.runtime.events.log import EventLog

STREAM = "proposals"
"""The id of the stream in the event log."""
OPEN = 20
"""Proposals that may be open at once."""
_ATTEMPTS = 100
_REASON = 2000
_LATEST = 8
_EVIDENCE = 20
_SLUG = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_LONGEST_SLUG = 40
_STATES = {
    "proposed": "open", "advised": "advice", "rejected": "rejected", "accepting": "accepting", "accepted": "accepted",
    "reverting": "reverting", "reverted": "reverted",
}  # fmt: skip
"""The state after each action; others leave it."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A change that the agent proposes."""

    slug: str
    """A few words for its name, in lower case with hyphens."""
    file: str
    """Below the configuration's folder."""
    change: str
    reason: str
    conversation: str
    evidence: tuple[int, ...]
    """Numbers of events of that conversation."""


@dataclass(slots=True)
class Proposal:
    """A proposal, with what happened to it."""

    number: int
    name: str
    at: float
    data: Mapping[str, Any]
    """Of its first event."""
    state: str = "open"
    history: list[Event] = field(default_factory=list["Event"])
    """The later events with its number."""

    @property
    def file(self) -> str:
        """The file that it changes; empty for advice."""
        return str(self.data.get("file", ""))

    def facts(self) -> dict[str, Any]:
        """Return it as JSON values."""
        happened = [{"at": each.at, **each.data} for each in self.history]
        return {"number": self.number, "name": self.name, "state": self.state, **self.data, "history": happened}


def read_proposals(log: EventLog) -> list[Proposal]:
    """Return all proposals, the oldest first."""
    found: dict[int, Proposal] = {}
    for event in log.events(STREAM):
        data, number = event.data, int(event.data.get("number", 0))
        if data["action"] in ("proposed", "advised"):
            found[number] = Proposal(number, str(data["name"]), event.at, data)
        elif number not in found:
            continue
        else:
            found[number].history.append(event)
        if data["action"] == "abandoned":
            found[number].state = str(data["state"])
        else:
            found[number].state = _STATES.get(data["action"], found[number].state)
    return list(found.values())


def find_proposal(log: EventLog, word: str) -> Proposal:
    """Return the proposal with that number or name.

    Raises:
        UsageError: there is none.
    """
    for each in read_proposals(log):
        if word in (str(each.number), each.name):
            return each
    raise UsageError(f"there is no proposal {to_printable(word)}", remedy="hermes-exec proposals list")


def add_proposal(log: EventLog, draft: Draft, marks: Sequence[str], more: Mapping[str, Any]) -> Proposal:
    """Record a proposal; it takes no effect.

    Args:
        log: of events.
        draft: the change, which was judged already.
        marks: what a person should see before its reason: see `proposals_judge`.
        more: further fields of the event: the state of the file, and the sources that the conversation read.

    Raises:
        UsageError: a part of it is not as it should be, there is one of that name, or too many are open.
    """
    check_draft(log, draft)

    def create(known: Sequence[Proposal]) -> dict[str, Any]:
        if any(each.name.partition("-")[2] == draft.slug for each in known):
            raise UsageError(f"there is a proposal named {draft.slug!r} already", remedy="another name")
        if sum(each.state == "open" for each in known) >= OPEN:
            raise UsageError(f"{OPEN} proposals are open, and a person has to decide first", remedy="wait")
        number = len(known) + 1
        return {
            "action": "proposed", "number": number, "name": f"{number}-{draft.slug}", "file": draft.file,
            "change": draft.change, "reason": flatten(draft.reason, _REASON), "conversation": draft.conversation,
            "evidence": list(draft.evidence), "marks": list(marks), **more,
        }  # fmt: skip

    event = append_event(log, create)
    return Proposal(int(event["number"]), str(event["name"]), 0.0, event)


def check_draft(log: EventLog, draft: Draft) -> None:
    """Check the form of a proposal, without the change itself.

    Raises:
        UsageError: something is not as it should be; it is named.
    """
    from hermes_exec_agent.memory.screening import find_refusal

    check_file(draft.file)
    if not _SLUG.fullmatch(draft.slug) or len(draft.slug) > _LONGEST_SLUG:
        raise UsageError(
            f"the name of a proposal has lower-case letters, digits and hyphens, at most {_LONGEST_SLUG}",
            remedy="raise-time-limit",
        )
    for what, text, most in (("reason", draft.reason, _REASON), ("change", draft.change, MOST)):
        if not text.strip() or len(text) > most:
            raise UsageError(f"the {what} should have from 1 to {most} characters")
        if refusal := find_refusal(text):
            raise UsageError(f"the {what} has {refusal}, which a proposal may not have")
        if log.redact(text) != text:
            raise UsageError(f"the {what} has a secret, which a proposal may not have")
    last = log.last(draft.conversation)
    if not draft.evidence or len(draft.evidence) > _EVIDENCE or not all(1 <= each <= last for each in draft.evidence):
        raise UsageError(
            f"evidence is a list of 1 to {_EVIDENCE} numbers of this conversation's events, "
            f"such as {_describe_latest(log, draft.conversation)}"
        )


def _describe_latest(log: EventLog, conversation: str) -> str:
    """Return the numbers of a conversation's latest events, each with its kind and tool."""
    latest = log.events(conversation, max(log.last(conversation) - _LATEST, 0))
    return ", ".join(f"{each.number} {each.kind} {each.data.get('name', '')}".strip() for each in latest)


def add_advice(log: EventLog, read: Callable[[int], Mapping[int, Sequence[str]]]) -> None:
    """Queue the advice of audits that the queue lacks, each once.

    Args:
        log: of events.
        read: returns the advice of the audits above a number, by the audit's number.
    """

    def create(known: Sequence[Proposal]) -> dict[str, Any]:
        since = max((int(each.data.get("audit", 0)) for each in known), default=0)
        missing = {number: lines for number, lines in sorted(read(since).items()) if lines}
        if not missing:
            return {}
        audit, lines = next(iter(missing.items()))
        number = len(known) + 1
        name = f"{number}-advice-of-audit-{audit}"
        return {"action": "advised", "number": number, "name": name, "audit": audit, "reason": " ".join(lines)}

    while append_event(log, create):
        pass


def reject(log: EventLog, number: int, why: str = "") -> None:
    """Record that a person rejects a proposal or dismisses advice.

    Raises:
        UsageError: it is not open, or the shell of an agent asks for it.
    """
    from hermes_exec_agent.agent_shell import refuse_agent

    refuse_agent()

    def create(known: Sequence[Proposal]) -> dict[str, Any]:
        proposal = next(each for each in known if each.number == number)
        if proposal.state not in ("open", "advice"):
            raise UsageError(f"proposal {proposal.name} is {proposal.state}", remedy="hermes-exec proposals list")
        return {"action": "rejected", "number": number, "why": flatten(why)}

    append_event(log, create)


def append_event(log: EventLog, create: Callable[[Sequence[Proposal]], dict[str, Any]]) -> dict[str, Any]:
    """Append what ``create`` returns for the proposals so far; nothing if it is empty. Return it as it was recorded.

    Raises:
        HermesError: nothing could be recorded.
    """
    for _ in range(_ATTEMPTS):
        last = log.last(STREAM)
        data = create(read_proposals(log))
        if not data:
            return {}
        try:
            return log.append(STREAM, "proposal", data, after=last).data
        except Conflict:
            continue
    raise HermesError("other programs keep recording proposals; this one was not recorded", remedy="try again")
