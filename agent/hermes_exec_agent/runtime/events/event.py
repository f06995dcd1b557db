"""Events of conversations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

NOTES = "notes"
"""The stream of the notes of all conversations."""
Kind = Literal[
    # {target, model, scripted, parent, version, person, guest}, and {origins, sources, has_output, hosts, strangers}
    # which are those of the conversation that this one branched off or works for: see `Provenance` and
    # `MessageHistory.hosts`; person and guest as in `memory.persons`
    "started",
    # {content, parts: [{source, content, memories, has_output, reason}], images: [{name, media_type, data}]}: parts are
    # notices of the program in addition to the words of the person; a part that recalls has the sources of its
    # memories, and whether one is untrusted, or no content and the reason why none were given; data is in base64
    "user",
    # {content, tool_calls: [{id, name, arguments, extras, given_id}], extras, origin, finish, model, usage, schemas,
    # sampling, request_id, tokens}; extras and origin as in `Message`, schemas names the stream `tools:DIGEST`;
    # sampling and request_id as in `CallTrace`, tokens as `TokenRecorder` packs them
    "assistant",
    # {id, name}: written before a tool runs, so that a call without a result is known after a crash; also {arguments,
    # written: {name, arguments}} if the model wrote another name or other arguments than those of the tool. A call
    # that can change something has {sources: [{tool, source, event, conversation}]}: the first and the latest results
    # that the conversation read before; conversation is left out if it is this one.
    "call",
    # {id, name, content, duration_s, origins: [{skill, digest, source}], source, strangers: [name]}: the untrusted
    # skills whose text is in it; the path, address or command that it came from; those of `Provenance.strangers` whose
    # text was read for the first time
    "result",
    "approval",  # {tool, summary, answer, origins, sources, strangers}
    "warning",  # {reason, content}: a guardrail's or the budget's own message to the model
    "steered",  # {content}: words of the person during a turn, which the model reads after its results
    "compacted",  # {upto, messages}: the messages that replace everything before
    "skill",  # {name, version, outcome}
    # {target, who, why, source, before: [text], entries: {target: [{text, origin, sources}]}}, in the stream of the
    # journal alone: see `memory.journal`
    "memory",
    # {conversation, upto, begun, last, sentences: [{part, text, events: [number]}], how, model, usage, reason}, in the
    # stream of notes alone: see `memory.notes`
    "note",
    # {action, after, …}, in the streams of user models alone: see `memory.claims`
    "claim",
    # {task, tasks, conversation, request, result, evidence: {kind, detail, event}, …}, in the stream of outcomes alone:
    # see `learning.outcomes`
    "outcome",
    # {number, upto, report}, or {number, upto, of, paragraph: {model, text}} for the audit ``of``, in the stream of
    # audits alone: see `learning.audit`
    "audit",
    # {action, review, …}, in the stream of reviews alone: see `learning.review_queue`
    "review",
    "curator",  # {what, run, …}: of the upkeep of skills, in a stream of its own: see `learning.curator`
    # {what, name, version, to, why}, or {what} after the person was notified, in a stream of its own: see
    # `learning.versions`
    "version",
    # {what, measurement, …}, in a stream of its own: see `learning.measure`
    "measurement",
    # {action, number, …}: of proposals to change the configuration, in a stream of its own: see `learning.proposals`
    "proposal",
    "rewound",  # {turns}: the person took back that many of the latest requests, which the model no longer reads
    # {what, target, …}: files of the target before and after they change. ``change`` and ``rollback`` have {changes:
    # [{path, before, after}]}, ``snapshot`` {top, store, tree, modes}, ``commands`` {top, since, changes}, and
    # ``uncovered`` {folder, why, since}; see `FileChange` and `FileCheckpoints`
    "files",
    "titled",  # {title}: the person's title of the conversation; the latest counts
    # {schemas}: the tools of a request as the endpoint receives them, once in each log, in the stream `tools:DIGEST`
    "tools",
    # {usage, conversation}: of a model that a tool asked by itself, or of the conversation that a task was delegated to
    "spent",
    "failed",  # {error}: a turn that ended without an answer
    "interrupted",  # {}
    "ended",  # {reason, content}: the program's list of the turn, if the model wrote no last message
]


_STREAMS = frozenset(
    {
        "audits",
        "claims",
        "curator",
        "measurements",
        "memory",
        "outcomes",
        "proposals",
        "reviews",
        "tools",
        "versions",
        NOTES,
    }
)
"""Ids, or their parts before a colon, of streams that are not conversations."""
STREAM_KINDS = (
    "audit", "claim", "curator", "measurement", "memory", "note", "outcome", "proposal", "review", "tools", "version",
)  # fmt: skip
"""Kinds of the events in these streams, which no conversation has."""


def is_stream(id: str) -> bool:
    """Return whether an id is that of such a stream, and of no conversation."""
    return id.partition(":")[0] in _STREAMS


@dataclass(frozen=True, slots=True)
class Event:
    """One row of the log."""

    conversation: str
    number: int
    """Counts from 1 in its conversation, without gaps."""
    at: float
    """Seconds since 1970, UTC."""
    kind: Kind
    data: dict[str, Any]
